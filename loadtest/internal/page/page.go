// Package page writes what was measured as HTML pages. A page is one file that needs nothing else: it contains its
// styles, scripts and data, and sends no request.
//
//	page.WriteReport(w, r)
//
// Every page is a Frame. Its colours are custom properties of the style sheet (assets/page.css), which has light and
// dark ones, so that whatever is drawn by a script takes them from there.
package page

import (
	"embed"
	"fmt"
	"html/template"
	"io"
	"strings"

	"stock/internal/stats"
	"stock/loadtest/internal/report"
)

//go:embed assets
var assets embed.FS

var templates = template.Must(template.New("").Funcs(functions).ParseFS(assets, "assets/*.tmpl"))

// functions are those that the templates call.
var functions = template.FuncMap{
	"style": func() template.CSS {
		return template.CSS(asset("page.css") + asset("report.css") + asset("timeline.css") + asset("explored.css"))
	},
	"grouped": grouped[float64], "number": stats.Format, "latency": latency, "percent": percent, "damage": damage,
	"whole":       grouped[int],
	"resultClass": resultClass,
	"lateWord":    func() string { return report.LateLosesUpdate },
	"script":      func(name string) template.JS { return template.JS(asset(name)) },
}

// asset returns a file of the assets.
func asset(name string) string {
	text, err := assets.ReadFile("assets/" + name)
	if err != nil {
		panic(err) // it was embedded when this program was built
	}
	return string(text)
}

// Frame is a page: a header, the main part, and what its scripts need.
type Frame struct {
	Title   string        // in the header and in the title bar
	Lead    string        // below it: what the page is about, in one line
	Main    template.HTML // the main part
	Data    []Data        // read by the scripts
	Scripts []string      // names of assets, run in this order at the end of the page
	// Style and Code are of the package that writes the page, if it has more than the assets: they come last.
	Style template.CSS
	Code  template.JS
	// Served permits requests to the origin of the page. Other pages send none, wherever they are opened from.
	Served bool
}

// Data is a value that scripts read from the page as JSON, from the script element of this id.
type Data struct {
	ID    string
	Value any
}

// Write writes the page.
func (f Frame) Write(w io.Writer) error {
	if err := templates.ExecuteTemplate(w, "frame", f); err != nil {
		return fmt.Errorf("write page: %w", err)
	}
	return nil
}

// render executes a template for the main part of a page.
func render(name string, data any) (template.HTML, error) {
	var b strings.Builder
	if err := templates.ExecuteTemplate(&b, name, data); err != nil {
		return "", fmt.Errorf("write page: %w", err)
	}
	return template.HTML(b.String()), nil
}
