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

// docsPolicy forbids the page to load anything from other servers, so that it also works offline. Swagger UI needs
// inline styles and the images in its style sheet.
const docsPolicy = "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:"

func getOpenAPI(w http.ResponseWriter, _ *http.Request) {
	writeRaw(w, http.StatusOK, typeJSON, openAPI)
}

func getDocs(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Security-Policy", docsPolicy)
	writeRaw(w, http.StatusOK, []string{"text/html; charset=utf-8"}, docsPage)
}

// getDocsAsset serves the files of Swagger UI that are embedded in the binary.
func (a *API) getDocsAsset(w http.ResponseWriter, r *http.Request) {
	name := chi.URLParam(r, "asset")
	contentType := []string{mime.TypeByExtension(path.Ext(name))}
	if name == "docs.js" {
		writeRaw(w, http.StatusOK, contentType, docsScript)
		return
	}
	body, err := static.FS.ReadFile(name)
	if err == nil {
		writeRaw(w, http.StatusOK, contentType, body)
		return
	}
	body, err = static.FS.ReadFile(name + ".gz")
	if err != nil {
		a.fail(w, r, describe(errNotFound, "there is nothing at %s", r.URL.Path))
		return
	}
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
	} else if body, err = gunzip(body); err != nil {
		a.fail(w, r, err)
		return
	}
	w.Header().Set("Vary", "Accept-Encoding")
	writeRaw(w, http.StatusOK, contentType, body)
}

func gunzip(compressed []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}
