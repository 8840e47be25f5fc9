package page

import (
	"cmp"
	"fmt"
	"html/template"
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
	Families []string
	Rows     int
	Width    int // columns
	Scale    logScale
	Known    bool     // some of the strategies that most people compare are there
	Interval bool     // some rates have an interval
	LeftOut  []string // why figures are missing
}

// loadView is the rows of a workload.
type loadView struct {
	Title string
	Name  string
	Rows  []rowView
}

// faultHead is a column of the table: what came of a fault scenario.
type faultHead struct{ Scenario, Head string }

// rowView is a row of the table.
type rowView struct {
	ID               string
	Strategy, On     string // its name, and its store and replicas if these are unusual
	Store, Family    string
	Known            bool
	Class, Word      string // verdict
	Note             string // about the verdict
	Place            int    // of the verdict among others, when rows are sorted by it
	Ranked           bool   // comes before others, however rows are sorted
	Rate             float64
	Bar              *barView
	RateText, Damage string
	Share            float64
	ShareText        string
	ShareInterval    string
	Requests         cell
	Median, Slowest  cell
	Faults           []faultWord
	Details          template.HTML
}

// cell is a number in the table, as a text and as a value to sort by.
type cell struct {
	Text  string
	Value float64
}

// latencyCell is empty if the latency is not known.
func latencyCell(ms float64) cell {
	if ms == 0 {
		return cell{}
	}
	return cell{milliseconds(ms), ms}
}

// barView is a rate with its interval, which may be missing. At, From and To are places on the scale of the table, in
// percent of its length.
type barView struct {
	Low, High    float64
	Interval     bool
	At, From, To float64
}

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
	"holder-dies": "loses units", "late-write": "loses a sale", "client-retries": "deducts twice",
	"holder-pauses": "loses a sale",
}

// Compared are the strategies that most people compare.
var Compared = []string{"mutex", "update", "for-update", "optimistic-version", "lock-redis-lua", "lock-redlock"}

// newTable makes the table of all measured rows; nil if there is none.
func newTable(r *report.Report) (*tableView, error) {
	t := &tableView{LeftOut: r.LeftOut()}
	for _, head := range shownFaults {
		if slices.ContainsFunc(r.Rows, func(row *report.Row) bool { return row.Faults[head.Scenario] != "" }) {
			t.Faults = append(t.Faults, head)
		}
	}
	t.Width = 7 + len(t.Faults)
	most := 0
	stores := map[string][]string{}
	for _, row := range r.Rows {
		most = max(most, row.Replicas)
		if !slices.Contains(stores[row.Strategy], row.Store) {
			stores[row.Strategy] = append(stores[row.Strategy], row.Store)
		}
	}
	for _, load := range r.Loads() {
		v := loadView{Title: load.Title, Name: load.Rows[0].Workload.Name}
		for _, row := range load.Rows {
			t.Rows++
			view := t.newRow(row)
			view.ID = fmt.Sprintf("row-%d", t.Rows)
			view.On = on(row, len(stores[row.Strategy]) > 1, row.Replicas < most)
			var err error
			if view.Details, err = t.details(r, row, view); err != nil {
				return nil, err
			}
			t.collect(view)
			v.Rows = append(v.Rows, view)
			t.Interval = t.Interval || view.Bar != nil && view.Bar.Interval
		}
		t.Loads = append(t.Loads, v)
	}
	if t.Rows == 0 {
		return nil, nil
	}
	t.placeBars()
	slices.Sort(t.Stores)
	slices.Sort(t.Families)
	return t, nil
}

// placeBars chooses the scale of the rates and places them on it. Rates differ by a factor of a hundred, so that the
// scale is logarithmic.
func (t *tableView) placeBars() {
	var bars []*rowView
	least, most := math.Inf(1), 0.0
	for _, load := range t.Loads {
		for i := range load.Rows {
			row := &load.Rows[i]
			if row.Bar == nil || row.Rate <= 0 {
				row.Bar = nil
				continue
			}
			if !row.Bar.Interval {
				row.Bar.Low, row.Bar.High = row.Rate, row.Rate
			}
			bars = append(bars, row)
			least, most = min(least, row.Rate), max(most, row.Bar.High)
		}
	}
	t.Scale = newLogScale(least, most)
	for _, row := range bars {
		b := row.Bar
		b.At, b.From, b.To = t.Scale.place(row.Rate), t.Scale.place(b.Low), t.Scale.place(b.High)
	}
}

// on names the row's store and number of replicas, if a reader could not know them.
func on(row *report.Row, store, replicas bool) string {
	var parts []string
	if store {
		parts = append(parts, row.Store)
	}
	if replicas {
		parts = append(parts, count(row.Replicas, "replica"))
	}
	return strings.Join(parts, " · ")
}

// collect adds what rows can be filtered by.
func (t *tableView) collect(v rowView) {
	if v.Store != "" && !slices.Contains(t.Stores, v.Store) {
		t.Stores = append(t.Stores, v.Store)
	}
	if !slices.Contains(t.Families, v.Family) {
		t.Families = append(t.Families, v.Family)
	}
	t.Known = t.Known || v.Known
}

func (t *tableView) newRow(row *report.Row) rowView {
	v := rowView{
		Strategy: row.Strategy, Store: row.Store, Family: family(row.Strategy),
		Known: slices.Contains(Compared, row.Strategy),
		Class: verdictClass(row), Rate: row.RatePerS(),
		Ranked:   row.Ranked() || row.Short && row.Result == verify.Correct && !row.Control && !row.Baseline,
		Requests: cell{grouped(float64(row.Requests)), float64(row.Requests)},
		Median:   latencyCell(row.LatencyMS.P50), Slowest: latencyCell(row.LatencyMS.P99),
	}
	v.Word, v.Place = verdictWord(row)
	v.Note = verdictNote(row)
	switch row.Result {
	case verify.Inconclusive:
		v.RateText = grouped(row.RatePerS())
	case verify.Wrong:
		v.Damage = damage(row)
	default:
		v.RateText = grouped(row.RatePerS())
		if !row.Baseline { // which is so fast that the other bars would be hard to tell apart
			v.Bar = &barView{}
		}
		if i := row.GoodputInterval; i != nil && v.Bar != nil {
			v.Bar.Low, v.Bar.High, v.Bar.Interval = i.Low, i.High, true
		}
	}
	if row.ShareOfNoop != nil && row.Result == verify.Correct {
		v.Share, v.ShareText = *row.ShareOfNoop, stats.Format(*row.ShareOfNoop)
		if i := row.ShareInterval; i != nil {
			v.ShareInterval = stats.Format(i.Low) + " to " + stats.Format(i.High)
		}
	}
	for _, head := range t.Faults {
		v.Faults = append(v.Faults, newFaultWord(head, row.Faults[head.Scenario]))
	}
	return v
}

// verdictClass is the colour of a row's verdict. A correct strategy that loses a late write is not simply correct, and
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

// verdictWord is the verdict, and its place when rows are sorted by it.
func verdictWord(row *report.Row) (word string, place int) {
	switch {
	case row.Baseline && row.ClaimHeld:
		return "baseline", 4
	case harmlessControl(row):
		return "control", 2
	case verdictClass(row) == "late":
		return "loses a late write", 1
	case row.Result == verify.Correct:
		return "correct", 0
	case row.Result == verify.Wrong:
		return "wrong", 3
	}
	return string(row.Result), 2
}

// verdictNote says whether the verdict is what the strategy claims.
func verdictNote(row *report.Row) string {
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
	case verdictClass(row) == "late" && row.Faults["late-write"] != string(report.Unsafe):
		return "claimed, not played; correct under load"
	case verdictClass(row) == "late":
		return "correct under load"
	}
	return ""
}

// damage says what a wrong row did, as the other reports do. A line breaks only between two findings.
func damage(row *report.Row) string {
	text := cmp.Or(row.Damage(), string(row.Result))
	return strings.ReplaceAll(strings.ReplaceAll(text, " ", "\u00a0"), ",\u00a0", ", ")
}

// newFaultWord shows an outcome, such as "blocked 2.0 s".
func newFaultWord(of faultHead, outcome string) faultWord {
	w := faultWord{Head: of.Head, Word: outcome, Place: 9}
	if outcome == "" {
		return w
	}
	first, _, _ := strings.Cut(outcome, " ")
	w.Class, w.Place = outcomeClass(report.Outcome(first))
	switch report.Outcome(first) {
	case report.Unsafe:
		w.Word = cmp.Or(unsafeWords[of.Scenario], outcome)
	case report.Unavailable:
		w.Word = first // its time is that of the story
	}
	return w
}

// outcomeClass is the colour of an outcome, and its place among others.
func outcomeClass(outcome report.Outcome) (class string, place int) {
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
func grouped(v float64) string { return strings.ReplaceAll(stats.Grouped(v), " ", "\u202f") }

// milliseconds writes a latency with two or three digits.
func milliseconds(v float64) string {
	if v >= 99.95 {
		return grouped(v)
	}
	return stats.Format(v)
}

// percent writes a part in percent.
func percent(part float64) string { return fmt.Sprintf("%.0f %%", math.Round(100*part)) }
