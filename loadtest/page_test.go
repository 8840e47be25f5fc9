package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"stock/loadtest/internal/browsertest"
	"stock/loadtest/internal/lab"
	"stock/loadtest/internal/report"
)

// These tests look at pages of runs that other tests make. Without Chromium, only these parts are skipped.

// mustLookRight checks a page in all its forms: wide and narrow, light and dark.
func mustLookRight(p *browsertest.Page) {
	for _, width := range []int64{1400, 375} {
		p.Size(width, 900)
		for _, dark := range []bool{false, true} {
			p.Dark(dark)
			p.MustFit()
			p.MustBeAccessible()
		}
	}
	p.Size(1400, 900)
	p.Dark(false)
}

// column returns the values of a column of the rows that are shown, in their order, for each workload.
func column(p *browsertest.Page, of string) [][]string {
	return browsertest.Eval[[][]string](p, fmt.Sprintf(`[...document.querySelectorAll("#rows tbody")].map(body =>
		[...body.querySelectorAll("tr.strategy:not([hidden])")].map(row => %s)).filter(body => body.length)`, of))
}

// lookAtRun uses the page of a run of update and none.
func lookAtRun(t *testing.T, dir string, r *report.Report) {
	p := browsertest.Open(t, browsertest.File(t, filepath.Join(dir, lab.ReportPage)))
	measured := 0
	for _, row := range r.Rows {
		if !row.JudgedOnly {
			measured++
		}
	}
	if got := p.Count("tr.strategy"); got != measured {
		t.Errorf("the table has %d rows, want %d", got, measured)
	}
	const frame, row = 100_000, 12_000 // bytes: with 80 rows and 860 cells of faults, a page has at most 3 MB
	if info, err := os.Stat(filepath.Join(dir, lab.ReportPage)); err != nil || info.Size() > frame+int64(row*len(r.Rows)) {
		t.Errorf("the page of %d rows is too large: %+v, %v", len(r.Rows), info, err)
	}
	if got := p.Text("#verdict"); got != r.Success() {
		t.Errorf("the page begins with %q, want %q", got, r.Success())
	}
	sortRows(t, p)
	filterRows(t, p)
	openRow(t, p)
	mustJumpToAnOverlap(t, p)
	mustLookRight(p)
}

// sortRows sorts by latency with the mouse, and by strategy with the keyboard.
func sortRows(t *testing.T, p *browsertest.Page) {
	t.Helper()
	const median = "thead th:nth-child(6)"
	for _, want := range []string{"ascending", "descending"} {
		p.Click(median + " button")
		if got := browsertest.Eval[string](p, `document.querySelector("`+median+`").ariaSort`); got != want {
			t.Errorf("sorted by latency: %q, want %q", got, want)
		}
		for _, load := range column(p, `row.dataset.ranked === undefined ? "unranked" : row.id`) {
			if ranked := slices.Index(load, "unranked"); ranked < 0 || slices.ContainsFunc(load[ranked:],
				func(id string) bool { return id != "unranked" }) {
				t.Errorf("sorted by latency, %s: strategies that are not ranked must come last: %q", want, load)
			}
		}
	}
	browsertest.Eval[any](p, `document.querySelector("thead button").focus()`)
	p.Press(kb.Enter)
	for _, load := range column(p, `row.querySelector("code").textContent`) {
		if !slices.IsSorted(load) || len(load) != 3 {
			t.Errorf("sorted by strategy: %q", load)
		}
	}
}

// filterRows shows the wrong strategies alone, and then those that most people compare.
func filterRows(t *testing.T, p *browsertest.Page) {
	t.Helper()
	choose := func(verdict string) {
		t.Helper()
		p.Do(chromedp.SetValue(chromedp.CSS(`[data-filter="verdict"]`), verdict))
		browsertest.Eval[any](p, `document.querySelector('[data-filter="verdict"]').dispatchEvent(new Event("change"))`)
	}
	names := func() string { return fmt.Sprint(column(p, `row.querySelector("code").textContent`)) }
	choose("bad")
	if got := names(); got != "[[none] [none]]" {
		t.Errorf("the wrong strategies are %s, want none under both workloads", got)
	}
	if got := p.Text("#shown"); got != "2 of 6 rows" {
		t.Errorf("the page says that it shows %q", got)
	}
	choose("")
	p.Click("#known")
	if got := names(); got != "[[update] [update]]" {
		t.Errorf("of the strategies that most people compare, the page shows %s, want update", got)
	}
	p.Click("#known")
}

// openRow opens the row of a wrong strategy with the keyboard.
func openRow(t *testing.T, p *browsertest.Page) {
	t.Helper()
	const opener = `[data-verdict="bad"] .opener`
	expanded := func() string {
		return browsertest.Eval[string](p, `document.querySelector('`+opener+`').ariaExpanded`)
	}
	browsertest.Eval[any](p, `document.querySelector('`+opener+`').focus()`)
	p.Press(kb.Enter)
	if expanded() != "true" || p.Count("tr.opened") != 1 {
		t.Errorf("the row is not open: expanded is %s, and %d rows are open", expanded(), p.Count("tr.opened"))
	}
	if got := p.Text(".opened .evidence li"); got == "" {
		t.Error("an opened row of a wrong strategy shows no evidence")
	}
	if got := p.Text(".opened .details"); !strings.Contains(got, "Latencies") || !strings.Contains(got, "Longest") {
		t.Errorf("an opened row does not show the latencies: %q", got)
	}
	if got := p.Count(".opened .timeline svg"); got == 0 {
		t.Error("an opened row of a wrong strategy has no timeline")
	}
	p.MustFit()
	p.MustBeAccessible()
	p.Press(" ")
	if expanded() != "false" || p.Count("tr.opened") != 0 {
		t.Errorf("the row is not closed: expanded is %s", expanded())
	}
	p.Press(" ") // what follows looks at the page with an open row
}

// lookAtSweep uses the page of a sweep of update and none.
func lookAtSweep(t *testing.T, dir string) {
	p := browsertest.Open(t, browsertest.File(t, filepath.Join(dir, lab.ReportPage)))
	if got := p.Count(".sweep svg.chart"); got != 2 {
		t.Errorf("the page has %d charts, want one for each workload", got)
	}
	if got := p.Count(`.sweep .curve`); got != 2 {
		t.Errorf("the charts have %d lines, want update alone in each: none is wrong", got)
	}
	p.Click(".sweep [data-line]")
	if got := browsertest.Eval[string](p, `document.querySelector("[data-line]").ariaPressed`); got != "true" {
		t.Errorf("the button of a line is pressed: %s", got)
	}
	mustLookRight(p)
}

// lookAtFaults uses the page of faults.
func lookAtFaults(t *testing.T, dir string, r []report.Fault) {
	p := browsertest.Open(t, browsertest.File(t, filepath.Join(dir, lab.ReportPage)))
	if got := p.Count("[data-fault]"); got != len(r) {
		t.Errorf("%d faults can be opened, want %d", got, len(r))
	}
	mustLookRight(p)

	// Tab reaches one cell of the grid, and the arrow keys the others.
	if got := p.Count(`.matrix [tabindex="0"]`); got != 1 {
		t.Errorf("Tab reaches %d cells, want 1", got)
	}
	browsertest.Eval[any](p, `document.querySelector('.matrix [tabindex="0"]').focus()`)
	p.Press(kb.ArrowRight)
	p.Press(kb.ArrowDown)
	p.Press(kb.Enter)
	focused := browsertest.Eval[string](p, `document.querySelector('.matrix [tabindex="0"]').ariaLabel`)
	scenario, rest, _ := strings.Cut(focused, ", ")
	strategy, _, _ := strings.Cut(rest, ":")
	i := slices.IndexFunc(r, func(f report.Fault) bool { return f.Scenario == scenario && f.Strategy == strategy })
	if i < 0 {
		t.Fatalf("the cell is called %q, and no such fault was played", focused)
	}
	readFault(t, p, r[i])
	p.MustBeAccessible()
	p.Size(375, 800)
	p.MustFit()
	p.Press(kb.Escape)
	p.WaitFor(`!document.getElementById("fault").open`)
	if got := browsertest.Eval[string](p, `document.activeElement.ariaLabel`); got != focused {
		t.Errorf("after the fault, %q has the focus, want %q", got, focused)
	}
}

// readFault checks what an open fault shows.
func readFault(t *testing.T, p *browsertest.Page, f report.Fault) {
	t.Helper()
	p.WaitFor(`document.getElementById("fault").open`)
	if got := p.Count("#fault .steps li"); got != len(f.Steps) {
		t.Errorf("the fault has %d steps, want %d", got, len(f.Steps))
	}
	text := p.Text("#fault")
	for _, want := range append([]string{f.Title, f.String(), f.Proof, f.Replay}, f.Evidence...) {
		if !strings.Contains(text, want) {
			t.Errorf("the fault lacks %q", want)
		}
	}
	if got := p.Text("#fault .replay code"); got != f.Replay {
		t.Errorf("the fault is played again by %q, want %q", got, f.Replay)
	}
	if got := p.Count("#fault .timeline svg"); got == 0 {
		t.Error("the fault has no timeline")
	}
	p.Click("#fault .replay button")
	p.WaitFor(`document.querySelector("#fault .replay button").textContent === "Copied"`)
}
