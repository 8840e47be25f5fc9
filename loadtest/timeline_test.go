package main

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"stock/loadtest/internal/browsertest"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/timeline"
)

// checkWindows checks that each row of a report has windows, and those of none a finding.
func checkWindows(t *testing.T, r *report.Report) {
	t.Helper()
	for _, row := range r.Rows {
		if row.Baseline {
			continue
		}
		if len(row.Windows) == 0 {
			t.Errorf("%s has no window", row.Label())
			continue
		}
		w := row.Windows[0]
		if overlaps := len(w.Findings) > 0 && w.Findings[0].Kind == timeline.Overlap; overlaps != (row.Strategy == "none") {
			t.Errorf("%s: findings %+v", row.Label(), w.Findings)
		}
	}
}

// bar is where a section is drawn.
type bar struct{ Left, Right, Top, Bottom float64 }

// mustJumpToAnOverlap presses the first button of the page's timeline, by keyboard, and looks at what is shown then.
func mustJumpToAnOverlap(t *testing.T, p *browsertest.Page) {
	t.Helper()
	browsertest.Eval[bool](p, `document.querySelector(".tl-jump").focus() || true`)
	p.Press(kb.Enter)
	p.WaitFor(`document.querySelector(".tl-view .tl-active") && document.activeElement.matches(".tl-view")`)
	const outlined = `[...document.querySelectorAll(".tl-view")[0].querySelectorAll(".tl-active")].length`
	if n := browsertest.Eval[int](p, outlined); n != 2 {
		t.Errorf("%d sections are outlined, want the two that overlap", n)
	}
	bars := browsertest.Eval[[]bar](p, `(() => {
		const view = document.querySelector(".tl-view");
		return [...view.querySelectorAll(".tl-active")]
			.map(e => view.querySelector('rect.tl-overlap[data-section="' + e.dataset.of + '"]')).filter(Boolean)
			.map(e => e.getBoundingClientRect())
			.map(b => ({Left: b.left, Right: b.right, Top: b.top, Bottom: b.bottom}));
	})()`)
	if len(bars) != 2 {
		t.Fatalf("%d red bars are outlined, want 2: %+v", len(bars), bars)
	}
	width := browsertest.Eval[float64](p, "window.innerWidth")
	height := browsertest.Eval[float64](p, "window.innerHeight")
	a, b := bars[0], bars[1]
	if min(a.Right, b.Right)-max(a.Left, b.Left) < 5 {
		t.Errorf("the bars do not overlap in time: %+v, %+v", a, b)
	}
	if min(a.Bottom, b.Bottom) > max(a.Top, b.Top) {
		t.Errorf("one bar is drawn over the other: %+v, %+v", a, b)
	}
	for _, bar := range bars {
		if bar.Right < 0 || bar.Left > width || bar.Top < 0 || bar.Bottom > height {
			t.Errorf("%+v is not in view (%v × %v)", bar, width, height)
		}
	}
	mustObeyKeys(t, p)
}

// mustObeyKeys selects, zooms and moves by keyboard. The timeline has the focus.
func mustObeyKeys(t *testing.T, p *browsertest.Page) {
	t.Helper()
	before := p.Text(".tl-detail")
	p.Press(kb.ArrowDown)
	p.WaitFor(`document.querySelectorAll(".tl-view")[0].querySelectorAll(".tl-active").length === 1`)
	if after := p.Text(".tl-detail"); after == before {
		t.Errorf("the details of the next section are not shown: %q", after)
	}
	const axis = `[...document.querySelector(".tl-view").querySelectorAll(".tl-grid")]
		.map(e => e.getAttribute("x1")).join()`
	for _, key := range []string{"+", "+", kb.ArrowRight, "-", "0"} {
		ticks := browsertest.Eval[string](p, axis)
		p.Press(key)
		p.WaitFor(fmt.Sprintf("%s !== %q", axis, ticks))
	}
}
