package httpapi

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"io"
	"mime"
	"net/http"
	"path"
	"strings"
	"sync"

	"github.com/go-chi/chi/v5"
	"github.com/swaggest/swgui/v5/static"
)

var (
	//go:embed openapi.json
	openAPI []byte
	//go:embed docs.html
	docsPage []byte
	//go:embed docs.js
	docsScript []byte
)

// docsPolicy forbids the page to load anything from other servers, so that it also works offline, and other pages to
// show it in a frame. Swagger UI needs inline styles and the images in its style sheet.
const docsPolicy = "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; frame-ancestors 'none'"

func getOpenAPI(w http.ResponseWriter, _ *http.Request) {
	writeRaw(w, http.StatusOK, typeJSON, openAPI)
}

func getDocs(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Security-Policy", docsPolicy)
	writeRaw(w, http.StatusOK, []string{"text/html; charset=utf-8"}, docsPage)
}

// getDocsAsset serves the files that the page loads.
func (a *API) getDocsAsset(w http.ResponseWriter, r *http.Request) {
	name := chi.URLParam(r, "asset")
	if name == "docs.js" {
		writeRaw(w, http.StatusOK, []string{mime.TypeByExtension(".js")}, docsScript)
		return
	}
	file, ok := assets()[name]
	if !ok {
		a.fail(w, r, describe(errNotFound, "there is nothing at %s", r.URL.Path))
		return
	}
	header := w.Header()
	body := file.plain
	if file.gzipped != nil {
		header["Vary"] = []string{"Accept-Encoding"}
		if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			header["Content-Encoding"] = []string{"gzip"}
			body = file.gzipped
		}
	}
	writeRaw(w, http.StatusOK, file.contentType, body())
}

// asset is a file of Swagger UI that is embedded in the binary.
type asset struct {
	contentType []string
	plain       func() []byte
	gzipped     func() []byte // nil if the file is embedded uncompressed
}

// assets are the files of Swagger UI by name. Each is read or decompressed once, when it is first asked for: clients
// that read slowly share one copy.
var assets = sync.OnceValue(func() map[string]asset {
	all := map[string]asset{}
	for _, file := range must(static.FS.ReadDir(".")) {
		embedded := sync.OnceValue(func() []byte { return must(static.FS.ReadFile(file.Name())) })
		name, compressed := strings.CutSuffix(file.Name(), ".gz")
		f := asset{contentType: []string{mime.TypeByExtension(path.Ext(name))}, plain: embedded}
		if compressed {
			f.gzipped = embedded
			f.plain = sync.OnceValue(func() []byte { return must(gunzip(embedded())) })
		}
		all[name] = f
	}
	return all
})

// must returns what was read from an embedded file, which cannot fail.
func must[T any](content T, err error) T {
	if err != nil {
		panic(err)
	}
	return content
}

func gunzip(compressed []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}
