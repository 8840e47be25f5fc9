package page

import (
	"fmt"
	"html/template"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"stock/internal/must"
	"stock/loadtest/internal/browsertest"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/timeline"
)

// open opens a page in a browser.
func open(t *testing.T, write func(io.Writer) error) *browsertest.Page {
	t.Helper()
	path := filepath.Join(t.TempDir(), "page.html")
	file, err := os.Create(path)
	must.Succeed(t, err)
	defer file.Close()
	must.Succeed(t, write(file))
	return browsertest.Open(t, browsertest.File(t, path))
}

func TestScriptsReadTheDataOfTheirPage(t *testing.T) {
	t.Parallel()
	text := "</script><b>&"
	f := Frame{Title: "A page", Main: template.HTML("<h2>Main</h2>"), Data: []Data{{ID: "numbers", Value: []any{1, text}}}}
	p := open(t, f.Write)
	got := browsertest.Eval[[]any](p, `JSON.parse(document.getElementById("numbers").textContent)`)
	if len(got) != 2 || got[0] != 1.0 || got[1] != text {
		t.Errorf("the data is %v", got)
	}
	p.MustFit()
}

func TestALegendSaysWhetherAnythingWasSoldAfterTheFault(t *testing.T) {
	t.Parallel()
	r := &report.Report{}
	for _, sold := range []bool{true, false} {
		w := timeline.Window{
			Title: "Item 1", To: 100, Of: 1, Lanes: []timeline.Lane{{Replica: "survivor"}},
			Sections: []timeline.Section{{Start: 10, End: 90, Request: "B", Kind: timeline.Request, Outcome: "busy", Count: 1}},
			Shaded:   []timeline.Shade{{Start: 50, End: 100, Text: "the victim is killed", Sold: sold}},
		}
		strategy := fmt.Sprint("sold-", sold)
		r.Faults = append(r.Faults, report.Fault{
			Scenario: "holder-dies", Strategy: strategy, Replay: strategy, Windows: []timeline.Window{w},
		})
	}
	p := open(t, func(out io.Writer) error { return WriteReport(out, r) })
	for strategy, want := range map[string]string{
		"sold-true":  "from “the victim is killed” until the next sale",
		"sold-false": "to the end: nothing was sold any more",
	} {
		openFault(p, "holder-dies/"+strategy, strategy)
		if got := p.Text(".tl-legend"); !strings.Contains(got, want) || !strings.Contains(got, "selected") {
			t.Errorf("the legend is %q, want %q in it", got, want)
		}
	}
}

// openFault follows a link to a fault, which is played again by a command.
func openFault(p *browsertest.Page, link, replay string) {
	browsertest.Eval[bool](p, `(location.hash = "`+link+`") !== ""`)
	p.WaitFor(`document.querySelector("#fault[open] .replay code")?.textContent === "` + replay + `"`)
}

// Two faults, in one page.
func TestFaultsAreOpenedAndCopied(t *testing.T) {
	t.Parallel()
	r := &report.Report{Faults: []report.Fault{
		{Scenario: "late-write", Strategy: "update", Effect: report.Safe, Replay: "play update"},
		{Scenario: "late-write", Strategy: "none", Effect: report.Unsafe, Replay: "play none"},
	}}
	p := open(t, func(out io.Writer) error { return WriteReport(out, r) })
	t.Run("by a link", func(*testing.T) { openByLinks(p) })
	t.Run("while another one closes", func(t *testing.T) { openWhileAnotherCloses(t, p) })
	t.Run("a failed copy is not called copied", func(*testing.T) { copyInVain(p) })
}

func openByLinks(p *browsertest.Page) {
	openFault(p, "late-write/none", "play none")
	openFault(p, "late-write/update", "play update") // while the first is open
	browsertest.Eval[bool](p, `document.getElementById("fault").close() || true`)
	// No escape sequence: it opens nothing, and the page reports no error. The listener of the page was called before.
	browsertest.Eval[bool](p, `addEventListener("hashchange", () => { window.changed = true; }) || true`)
	browsertest.Eval[bool](p, `(location.hash = "%") !== ""`)
	p.WaitFor("window.changed && !document.getElementById('fault').open")
}

// The fault that is opened keeps its address.
func openWhileAnotherCloses(t *testing.T, p *browsertest.Page) {
	t.Helper()
	browsertest.Eval[bool](p, `(() => {
		const [first, second] = document.querySelectorAll("button[data-fault]");
		const dialog = document.getElementById("fault");
		dialog.addEventListener("close", () => { window.heard = true; });
		first.click();
		dialog.close(); // the browser tells the page later
		second.click();
		window.want = location.hash;
		return true;
	})()`)
	p.WaitFor("window.heard")
	if !browsertest.Eval[bool](p, `want.startsWith("#late-write/") && location.hash === want`) {
		t.Errorf("the address ends with %q", browsertest.Eval[string](p, "location.hash"))
	}
}

func copyInVain(p *browsertest.Page) {
	browsertest.Eval[bool](p, `(() => {
		Clipboard.prototype.writeText = async () => { throw new Error("not permitted"); };
		document.execCommand = () => false;
		return true;
	})()`)
	p.Click("#fault[open] .replay button")
	p.WaitFor(`document.querySelector("#fault .replay button").textContent === "Not copied"`)
}
