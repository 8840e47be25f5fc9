package page

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"stock/internal/must"
	"stock/loadtest/internal/browsertest"
	"stock/loadtest/internal/explore/trace"
	"stock/loadtest/internal/report"
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

// recorded returns what an exploration found.
func recorded(t *testing.T) (results []trace.Result) {
	t.Helper()
	text, err := os.ReadFile("testdata/explored.json")
	must.Succeed(t, err)
	must.Succeed(t, json.Unmarshal(text, &results))
	return results
}

func TestTracesCanBeSteppedThrough(t *testing.T) {
	t.Parallel()
	results := recorded(t)
	p := open(t, func(w io.Writer) error { return WriteExplored(w, results) })
	if got := p.Count(".subject"); got != len(results) {
		t.Errorf("the page lists %d subjects, want %d", got, len(results))
	}
	const trace = `document.querySelector(".subject[open] .trace")`
	hidden := func() int { return browsertest.Eval[int](p, trace+`.querySelectorAll(".later").length`) }
	said := func() string { return browsertest.Eval[string](p, trace+`.querySelector("[role=status]").textContent`) }
	p.Click(".subject summary")
	steps := browsertest.Eval[int](p, trace+`.querySelectorAll(".schedule li").length`)
	if hidden() != 0 || steps < 5 {
		t.Errorf("%d of %d steps are hidden at first, want none", hidden(), steps)
	}
	p.Click(`.subject[open] [aria-label="First step"]`)
	if got := hidden(); got != steps-1 || !strings.HasPrefix(said(), "step 1 of ") {
		t.Errorf("at the first step, %d of %d are hidden, and the page says %q", got, steps, said())
	}
	p.Press(kb.ArrowRight)
	p.Press(kb.ArrowRight)
	if got := hidden(); got != steps-3 {
		t.Errorf("after two steps, %d of %d are hidden", got, steps)
	}
	p.Press(kb.ArrowLeft)
	const current = `.querySelectorAll("li")].findIndex((li) => li.ariaCurrent === "step")`
	if got := browsertest.Eval[int](p, `[...`+trace+current); got != 1 {
		t.Errorf("after one step back, the step with the index %d is the current one, want 1", got)
	}
	p.Press(kb.End)
	if hidden() != 0 {
		t.Errorf("at the end, %d steps are hidden", hidden())
	}
	p.Press(kb.ArrowRight)
	if hidden() != 0 {
		t.Error("behind the last step is another one")
	}
	browsertest.Eval[bool](p, `[...document.querySelectorAll("details")].every((d) => d.open = true)`)
	for _, width := range []int64{1400, 375} {
		p.Size(width, 900)
		for _, dark := range []bool{false, true} {
			p.Dark(dark)
			p.MustFit()
			p.MustBeAccessible()
		}
	}
}

func TestATraceIsReadableWithoutAScript(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	must.Succeed(t, WriteExplored(&b, recorded(t)))
	text, _, _ := strings.Cut(b.String(), `<script>`)
	mustSay(t, text, []string{
		"SELECT stock FROM good_stock WHERE goods_id = 1", "the leases of all locks end in the store",
		"loadtest explore --strategies none --replay enough:", "-- T2. Returns 10", "units sold but still in stock",
	}, []string{`class="later`})
}

func TestARefutedClaimIsInTheReport(t *testing.T) {
	t.Parallel()
	results := recorded(t)
	for _, test := range []struct {
		change        func(*trace.Result)
		class         string
		failed, judge bool
	}{
		{func(*trace.Result) {}, "ok", false, true},
		{func(r *trace.Result) { r.Cells[0].Held = false }, "bad", true, true},
		{func(r *trace.Result) { r.Exhausted = false; r.Tally.Diverged = 1 }, "open", false, false},
	} {
		r := results[0]
		r.Cells = append([]trace.Cell{}, r.Cells...)
		test.change(&r)
		b := report.NewBuilder(report.Environment{})
		b.AddExplored(r)
		got := b.Report()
		if got.ClaimFailed != test.failed || got.Inconclusive == test.judge || newVerdict(got).Class != test.class {
			t.Errorf("the report says failed %v, inconclusive %v and %q, want it %s: %v",
				got.ClaimFailed, got.Inconclusive, newVerdict(got).Class, test.class, got.Problems)
		}
		if v := newExplored([]trace.Result{r}); v.Class != test.class {
			t.Errorf("the page is %q, want %q", v.Class, test.class)
		}
	}
}

// Nobody knows what a user's service claims.
func TestAServiceIsRightOrWrong(t *testing.T) {
	t.Parallel()
	cell := func(fault string, damaged int, held bool) trace.Cell {
		c := trace.Cell{Fault: fault, Schedules: 6, Held: held, Kinds: map[string]int{trace.Right: 6 - damaged}}
		if damaged > 0 {
			c.Kinds[trace.LostUpdate] = damaged
			c.Shortest = map[string]trace.Schedule{trace.LostUpdate: {}}
		}
		return c
	}
	for want, cells := range map[string][]trace.Cell{
		"The service is wrong.":                  {cell("", 1, false), cell("lost-reply", 0, true)},
		"Damage only after a fault: lease-ends.": {cell("", 0, true), cell("lease-ends", 2, true)},
		"No schedule does damage.":               {cell("", 0, true)},
	} {
		r := trace.Result{Strategy: "./my-service", Own: true, Exhausted: true, Cells: cells, Tally: trace.Tally{Settled: 1}}
		var b strings.Builder
		must.Succeed(t, WriteExplored(&b, []trace.Result{r}))
		mustSay(t, b.String(), []string{want}, nil)
	}
}

func TestDamageThatAScriptExpectsIsNotPraised(t *testing.T) {
	t.Parallel()
	r := trace.Result{Own: true, Exhausted: true, Cells: []trace.Cell{{
		Schedules: 6, Kinds: map[string]int{trace.Right: 2, trace.LostUpdate: 4}, Claim: trace.LostUpdate, Held: true,
		Shortest: map[string]trace.Schedule{trace.LostUpdate: {}},
	}}}
	v := newExplored([]trace.Result{r})
	if v.Class != "base" || v.Heading != "As expected: lost update." {
		t.Errorf("the page is headed %q (%s)", v.Heading, v.Class)
	}
	if c := v.Subjects[0].Cells[0]; c.Right != "2 right," || c.Found != "4 lost update" || c.Class != "bad" {
		t.Errorf("what came of the schedules is %+v", c)
	}
}
