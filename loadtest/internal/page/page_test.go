package page

import (
	"html/template"
	"os"
	"path/filepath"
	"testing"

	"stock/loadtest/internal/browsertest"
)

// openFrame opens a page in a browser.
func openFrame(t *testing.T, f Frame) *browsertest.Page {
	t.Helper()
	path := filepath.Join(t.TempDir(), "page.html")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := f.Write(file); err != nil {
		t.Fatal(err)
	}
	return browsertest.Open(t, browsertest.File(t, path))
}

func TestScriptsReadTheDataOfTheirPage(t *testing.T) {
	t.Parallel()
	text := "</script><b>&"
	f := Frame{Title: "A page", Main: template.HTML("<h2>Main</h2>"), Data: []Data{{ID: "numbers", Value: []any{1, text}}}}
	p := openFrame(t, f)
	got := browsertest.Eval[[]any](p, `JSON.parse(document.getElementById("numbers").textContent)`)
	if len(got) != 2 || got[0] != 1.0 || got[1] != text {
		t.Errorf("the data is %v", got)
	}
	p.MustFit()
}
