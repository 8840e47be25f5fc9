package page

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"stock/internal/stats"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/verify"
)

// tableView is the table of strategies.
type tableView struct {
	Loads    []loadView
	Faults   []faultHead // the columns of measured faults
	Stores   []string    // what can be filtered by
	Rows     int
	Scale    logScale
	Known    bool     // some of the strategies that most people compare are there
	Interval bool     // some rates have an interval
	LeftOut  []string // why figures are missing
}

// Width is the number of columns.
func (t *tableView) Width() int { return 7 + len(t.Faults) }

// loadView is the rows of a workload.
type loadView struct {
	Title string
	Rows  []*rowView
}

// faultHead is a column of the table: what came of a fault scenario.
type faultHead struct{ Scenario, Head string }

// rowView is a row of the table, with what it shows when it is opened.
type rowView struct {
	*report.Row

	ID         string
	On         string // its store and replicas, if these are unusual
	Summary    string // how the strategy works
	Bar        *barView
	FaultWords []faultWord // of the faults that have a column
}

// barView is a rate with its interval, on the scale of the table, in percent of its length.
type barView struct{ At, From, To float64 }

// faultWord is what came of a fault scenario.
type faultWord struct {
	Head, Class, Word string
	Place             int // when rows are sorted by it
}

// shownFaults are the scenarios that have a column.
var shownFaults = []faultHead{
	{"holder-dies", "holder dies"}, {"late-write", "late write"}, {"client-retries", "sent again"},
	{"holder-pauses", "holder stopped"},
}

// unsafeWords says what unsafe means in a scenario.
var unsafeWords = map[string]string{
	"holder-dies": "loses units", "late-write": "loses an update", "client-retries": "deducts twice",
	"holder-pauses": "loses an update",
}

// Compared are the strategies that most people compare.
var Compared = []string{"mutex", "update", "for-update", "optimistic-version", "lock-redis-lua", "lock-redlock"}

// newTable makes the table of all measured rows; nil if there is none.
func newTable(r *report.Report) *tableView {
	t := &tableView{LeftOut: r.LeftOut()}
	for _, head := range shownFaults {
		if slices.ContainsFunc(r.Rows, func(row *report.Row) bool { return row.Faults[head.Scenario] != "" }) {
			t.Faults = append(t.Faults, head)
		}
	}
	for _, load := range r.Loads() {
		v := loadView{Title: load.Title}
		for _, row := range load.Rows {
			t.Rows++
			view := &rowView{Row: row, ID: fmt.Sprintf("row-%d", t.Rows), Summary: r.Summaries[row.Strategy]}
			view.On = strings.Join(r.Where(row), " · ")
			for _, head := range t.Faults {
				view.FaultWords = append(view.FaultWords, newFaultWord(head, row.Faults[head.Scenario]))
			}
			if row.Store != "" && !slices.Contains(t.Stores, row.Store) {
				t.Stores = append(t.Stores, row.Store)
			}
			t.Known = t.Known || view.IsCompared()
			t.Interval = t.Interval || view.hasBar() && row.GoodputInterval != nil
			v.Rows = append(v.Rows, view)
		}
		t.Loads = append(t.Loads, v)
	}
	if t.Rows == 0 {
		return nil
	}
	t.placeBars()
	slices.Sort(t.Stores)
	return t
}

// placeBars chooses the scale of the rates and places them on it. Rates differ by a factor of a hundred, so that the
// scale is logarithmic.
func (t *tableView) placeBars() {
	least, most := math.Inf(1), 0.0
	for _, load := range t.Loads {
		for _, row := range load.Rows {
			if row.hasBar() {
				_, high := row.span()
				least, most = min(least, row.GoodputPerS), max(most, high)
			}
		}
	}
	t.Scale = newLogScale(least, most)
	for _, load := range t.Loads {
		for _, row := range load.Rows {
			if row.hasBar() {
				low, high := row.span()
				row.Bar = &barView{t.Scale.place(row.GoodputPerS), t.Scale.place(low), t.Scale.place(high)}
			}
		}
	}
}

// hasBar reports whether the rate is drawn. The baseline is so fast that the other bars would be hard to tell apart.
func (v *rowView) hasBar() bool {
	return v.Result == verify.Correct && !v.Baseline && v.GoodputPerS > 0
}

// span is the interval of the rate, or the rate if there is none.
func (v *rowView) span() (low, high float64) {
	if i := v.GoodputInterval; i != nil {
		return i.Low, i.High
	}
	return v.GoodputPerS, v.GoodputPerS
}

// IsCompared reports whether most people compare the strategy.
func (v *rowView) IsCompared() bool { return slices.Contains(Compared, v.Strategy) }

// ComesFirst reports whether the row comes before others, however rows are sorted.
func (v *rowView) ComesFirst() bool {
	return v.Ranked() || v.Short && v.Result == verify.Correct && !v.Control && !v.Baseline
}

// IsWrong reports whether the damage is shown in place of the rate.
func (v *rowView) IsWrong() bool { return v.Result == verify.Wrong }

// Share is the share of noop, if it means something.
func (v *rowView) Share() *float64 {
	if v.Result != verify.Correct {
		return nil
	}
	return v.ShareOfNoop
}

// verdictClass is the colour of a row's verdict. If a late write loses an update, a strategy is not simply correct, and
// a control is not recommended.
func verdictClass(row *report.Row) string {
	switch {
	case harmlessControl(row):
		return "base"
	case row.Result == verify.Correct && row.LateLoss() != "":
		return "late"
	}
	return resultClass(row.Result)
}

// harmlessControl reports whether a row is of a control that is wrong under another load.
func harmlessControl(row *report.Row) bool { return row.Control && row.Result == verify.Correct }

func resultClass(result verify.Result) string {
	switch result {
	case verify.Correct:
		return "ok"
	case verify.Wrong:
		return "bad"
	}
	return "open"
}

// Class is the colour of the row's verdict.
func (v *rowView) Class() string { return verdictClass(v.Row) }

// Word is the verdict.
func (v *rowView) Word() string {
	switch {
	case v.Baseline && v.ClaimHeld:
		return report.Baseline
	case harmlessControl(v.Row):
		return "control"
	case v.Class() == "late":
		return report.LateLosesUpdate
	}
	return string(v.Result)
}

// Place is where rows with this verdict come when rows are sorted by it.
func (v *rowView) Place() int {
	words := []string{"correct", report.LateLosesUpdate, "control", "inconclusive", "wrong", report.Baseline}
	return slices.Index(words, v.Word())
}

// Note says whether the verdict is what the strategy claims.
func (v *rowView) Note() string {
	row := v.Row
	switch {
	case row.Untested:
		return "too few requests raced to tell"
	case !row.ClaimHeld:
		return "it claims: " + strings.ReplaceAll(row.Claim, "-", " ")
	case row.Baseline:
		return "deducts nothing"
	case harmlessControl(row) && row.Claim == verify.ClaimOversells:
		return "correct while stock lasts"
	case harmlessControl(row):
		return "correct under this load only"
	case row.Control:
		return "on purpose: a control"
	case row.Result == verify.Wrong:
		return "as it claims"
	case v.Class() == "late" && row.Faults["late-write"] != string(report.Unsafe):
		return report.ClaimedOnly + "; " + report.CorrectUnderLoad
	case v.Class() == "late":
		return report.CorrectUnderLoad
	}
	return ""
}

// damage says what a wrong row did, as the other reports do. A line breaks only between two findings.
func damage(row *report.Row) string {
	text := cmp.Or(row.Damage(), string(row.Result))
	return strings.ReplaceAll(strings.ReplaceAll(text, " ", "\u00a0"), ",\u00a0", ", ")
}

// newFaultWord shows an outcome, such as "blocked until the lease ends (here 4 s)".
func newFaultWord(of faultHead, outcome string) faultWord {
	w := faultWord{Head: of.Head, Word: outcome, Place: 9}
	if outcome == "" {
		return w
	}
	first, _, _ := strings.Cut(outcome, " ")
	w.Class, w.Place = outcomeClass(report.Effect(first))
	switch report.Effect(first) {
	case report.Unsafe:
		w.Word = cmp.Or(unsafeWords[of.Scenario], outcome)
	case report.Unavailable:
		w.Word = first // its time is that of the fault
	}
	return w
}

// outcomeClass is the colour of an outcome, and its place among others.
func outcomeClass(outcome report.Effect) (class string, place int) {
	switch outcome {
	case report.Safe:
		return "ok", 0
	case report.Blocked:
		return "wait", 1
	case report.Unavailable:
		return "halt", 2
	case report.Unsafe:
		return "bad", 3
	case report.Skipped:
		return "skip", 5
	}
	return "open", 4
}

// grouped writes a whole number with narrow spaces between the thousands, at which no line is broken.
func grouped[Number int | int64 | float64](v Number) string {
	return strings.ReplaceAll(stats.Grouped(v), " ", "\u202f")
}

// latency is empty if the latency is not known.
func latency(ms float64) string {
	if ms == 0 {
		return ""
	}
	return milliseconds(ms)
}

// milliseconds writes a latency with two or three digits.
func milliseconds(v float64) string {
	if v >= 99.95 {
		return grouped(v)
	}
	return stats.Format(v)
}

// percent writes a part in percent.
func percent(part float64) string { return fmt.Sprintf("%.0f %%", math.Round(100*part)) }
