package httpapi

import (
	"compress/gzip"
	_ "embed"
	"io"
	"mime"
	"net/http"
	"path"
	"strings"

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

// getDocsAsset serves the files that the page loads. Most are embedded compressed, and none is copied: clients that
// read slowly would fill the memory.
func (a *API) getDocsAsset(w http.ResponseWriter, r *http.Request) {
	name := chi.URLParam(r, "asset")
	contentType := mime.TypeByExtension(path.Ext(name))
	if name == "docs.js" {
		writeRaw(w, http.StatusOK, []string{contentType}, docsScript)
		return
	}
	file, err := static.FS.Open(name + ".gz")
	compressed := err == nil
	if !compressed {
		file, err = static.FS.Open(name)
	}
	if err != nil || contentType == "" {
		a.fail(w, r, describe(errNotFound, "there is nothing at %s", r.URL.Path))
		return
	}
	defer file.Close()
	content := io.Reader(file)
	if compressed {
		w.Header()["Vary"] = []string{"Accept-Encoding"}
		if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			w.Header()["Content-Encoding"] = []string{"gzip"}
		} else if content, err = gzip.NewReader(file); err != nil {
			a.fail(w, r, err)
			return
		}
	}
	writeRaw(w, http.StatusOK, []string{contentType}, nil)
	_, _ = io.Copy(w, content) // fails only if the client is gone
}
