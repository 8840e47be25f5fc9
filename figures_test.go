package stock_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"stock/internal/must"
	"stock/internal/stock"
)

// figures are the results of a whole run of the lab that the documents show. They are kept in figuresFile.
type figures struct {
	Conditions string        `json:"conditions"`
	Rows       []measurement `json:"rows"`
}

// measurement is a row of the lab's report: a strategy under a workload.
type measurement struct {
	Strategy string      `json:"strategy"`
	Replicas int         `json:"replicas"`
	Workload string      `json:"workload"`
	Verdict  string      `json:"verdict"`
	Goodput  float64     `json:"goodput"`            // units sold correctly per second
	Interval *[2]float64 `json:"interval,omitempty"` // 95 %
	Answered float64     `json:"answered,omitempty"` // requests per second
	Noop     *float64    `json:"noop,omitempty"`     // share of noop's goodput
	Share    *[2]float64 `json:"share,omitempty"`    // 95 % interval of Noop
	Rounds   int         `json:"rounds,omitempty"`
	Requests int         `json:"requests,omitempty"` // sent in all rounds
	P50      float64     `json:"p50,omitempty"`      // ms; 0: not known, for one of the reasons in docs/performance.md
	P99      float64     `json:"p99,omitempty"`      // ms; the same
	Sold     int64       `json:"sold,omitempty"`     // units confirmed, of a strategy that is wrong
	Lost     int64       `json:"lost,omitempty"`     // units
	Oversold int64       `json:"oversold,omitempty"` // units
	// Faults says what came of each fault scenario, such as "safe".
	Faults map[string]string `json:"faults,omitempty"`
}

// report is what the documents show of a report.json of loadtest run.
type report struct {
	Schema      string
	Environment struct {
		CPU     string
		Cores   int
		Go      string
		Seed    uint64
		Servers []server
	}
	Rows []struct {
		Strategy, Workload, Verdict string
		Replicas, Users             int
		Baseline                    bool
		JudgedOnly                  bool                         `json:"judged_only"`
		Goodput                     float64                      `json:"goodput_per_s"`
		Interval                    *struct{ Low, High float64 } `json:"goodput_interval"`
		Answered                    float64                      `json:"throughput_per_s"`
		Noop                        *float64                     `json:"share_of_noop"`
		Share                       *struct{ Low, High float64 } `json:"share_interval"`
		Latency                     struct{ P50, P99 float64 }   `json:"latency_ms"`
		Sold, Oversold              int64
		Lost                        int64 `json:"lost_updates"`
		Requests                    int
		Rounds                      []struct{}
		Faults                      map[string]string
	}
}

type server struct {
	Name, Version string
	Settings      map[string]string
}

func (s server) String() string {
	var settings []string
	for _, name := range slices.Sorted(maps.Keys(s.Settings)) {
		settings = append(settings, name+"="+s.Settings[name])
	}
	text := s.Name + " " + s.Version
	if len(settings) > 0 {
		text += " (" + strings.Join(settings, ", ") + ")"
	}
	return text
}

func (r *report) conditions() string {
	e := r.Environment
	var servers []string
	for _, s := range e.Servers {
		if s.Name != "service" {
			servers = append(servers, s.String())
		}
	}
	rounds, users := 0, 0
	for _, row := range r.Rows {
		if !row.JudgedOnly {
			rounds, users = len(row.Rounds), row.Users
		}
	}
	return fmt.Sprintf("Means of %d rounds, %d users, two replicas behind nginx, "+
		"%d cores (%s) for load and servers; %s; %s; seed %d.",
		rounds, users, e.Cores, strings.ReplaceAll(e.CPU, "(R)", ""),
		strings.Join(servers, ", "), e.Go, e.Seed)
}

// newFigures takes the figures from a report of loadtest run.
func newFigures(t *testing.T, path string) *figures {
	t.Helper()
	var from report
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &from)
	}
	must.Succeed(t, err)
	if from.Schema != "stock-lab/1" || len(from.Rows) == 0 {
		t.Fatalf("%s is not a report of loadtest run: it has %d rows and the schema %q", path, len(from.Rows), from.Schema)
	}
	f := &figures{Conditions: from.conditions()}
	for _, r := range from.Rows {
		if r.Baseline || r.JudgedOnly {
			continue
		}
		if r.Noop == nil || r.Answered == 0 {
			t.Fatalf("%s lacks the throughput or share of noop of %s: run the whole lab", path, r.Strategy)
		}
		noop := short(*r.Noop)
		row := measurement{
			Strategy: r.Strategy, Replicas: r.Replicas, Workload: r.Workload, Verdict: r.Verdict,
			Goodput: math.Round(r.Goodput), Answered: math.Round(r.Answered), Noop: &noop,
			P50: short(r.Latency.P50), P99: short(r.Latency.P99), Rounds: len(r.Rounds),
			Requests: r.Requests, Faults: r.Faults,
		}
		if r.Share != nil {
			row.Share = &[2]float64{short(r.Share.Low), short(r.Share.High)}
		}
		if r.Interval != nil {
			row.Interval = &[2]float64{math.Round(r.Interval.Low), math.Round(r.Interval.High)}
		}
		if r.Verdict == "wrong" {
			row.Sold, row.Lost, row.Oversold = r.Sold, r.Lost, r.Oversold
		}
		f.Rows = append(f.Rows, row)
	}
	return f
}

// short rounds to three significant digits, and numbers from 100 up to whole numbers.
func short(v float64) float64 {
	if v == 0 || v >= 100 {
		return math.Round(v)
	}
	scale := math.Pow(10, 2-math.Floor(math.Log10(v)))
	return math.Round(v*scale) / scale
}

// json writes one row per line, so that a new run gives a readable diff.
func (f *figures) json(t *testing.T) []byte {
	t.Helper()
	encode := func(v any) string {
		text, err := json.Marshal(v)
		must.Succeed(t, err)
		return string(text)
	}
	var rows []string
	for _, r := range f.Rows {
		rows = append(rows, "    "+encode(r))
	}
	return fmt.Appendf(nil, "{\n  \"conditions\": %s,\n  \"rows\": [\n%s\n  ]\n}\n",
		encode(f.Conditions), strings.Join(rows, ",\n"))
}

// keptFigures reads figuresFile.
func keptFigures() (*figures, error) {
	text, err := os.ReadFile(figuresFile)
	if err != nil {
		return &figures{}, err
	}
	var f figures
	return &f, json.Unmarshal(text, &f)
}

func readFigures(t *testing.T) *figures {
	t.Helper()
	f, err := keptFigures()
	if errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("%v: run go test . -update -lab out/lab/report.json", err)
	}
	must.Succeed(t, err)
	for _, r := range f.Rows {
		if strategy(r.Strategy) == nil {
			t.Errorf("%s has figures of %s, which is not in the catalogue: run the lab again", figuresFile, r.Strategy)
		}
	}
	return f
}

// notIn returns the strategies of the catalogue that f has figures of, and other has not.
func (f *figures) notIn(other *figures) (names []string) {
	for _, s := range strategies {
		of := func(r measurement) bool { return r.Strategy == s.Name }
		if slices.ContainsFunc(f.Rows, of) && !slices.ContainsFunc(other.Rows, of) {
			names = append(names, s.Name)
		}
	}
	return names
}

func (f *figures) row(name string, replicas int, workload string) *measurement {
	i := slices.IndexFunc(f.Rows, func(r measurement) bool {
		return r.Strategy == name && r.Replicas == replicas && r.Workload == workload
	})
	if i < 0 {
		return nil
	}
	return &f.Rows[i]
}

// correct reports whether the judge found the strategy correct, and it is no control, which is wrong under another
// load. Others are not ranked.
func (r *measurement) correct() bool { return r.Verdict == "correct" && !strategy(r.Strategy).Control }

// found returns the verdict in words, and what a late write does.
func (r *measurement) found() string {
	if r.losesLate() {
		return r.judged() + ", but " + r.lateLoss()
	}
	return r.judged()
}

// losesLate reports whether the strategy is correct, but not after a late write.
func (r *measurement) losesLate() bool { return r.judged() == "correct" && r.lateLoss() != "" }

// judged returns the verdict in words.
func (r *measurement) judged() string {
	switch {
	case r.Lost > 0:
		return fmt.Sprintf("**wrong**: %d of %d units lost", r.Lost, r.Sold)
	case r.Oversold > 0:
		return fmt.Sprintf("**wrong**: %d of %d units oversold", r.Oversold, r.Sold)
	case r.Verdict == "wrong":
		return "**wrong**"
	case r.Verdict == "correct" && strategy(r.Strategy).Claim.TwoReplicas == stock.Oversells:
		return "correct while stock lasts"
	case r.Verdict == "correct" && !r.correct():
		return "correct under this load only"
	}
	return r.Verdict
}

// notMeasured ends what a strategy claims, if that was not measured.
const notMeasured = " (not measured)"

// lateLoss says that a late write loses an update, as was played or as the strategy claims; empty otherwise.
func (r *measurement) lateLoss() string {
	const loses = "a late write **loses an update**"
	switch {
	case r.Faults["late-write"] == "unsafe":
		return loses
	case r.Faults["late-write"] == "" && r.Replicas > 1 && strategy(r.Strategy).Claim.LateWrite == stock.LateLosesUpdates:
		return loses + " (claimed, not played)"
	}
	return ""
}

// fault says what came of a fault scenario, with other words for "unsafe"; or what the strategy claims, if the scenario
// was not played.
func (r *measurement) fault(scenario, unsafe, claim string) string {
	if r == nil || r.Faults[scenario] == "" {
		return claim + notMeasured
	}
	return strings.Replace(r.Faults[scenario], "unsafe", "**"+unsafe+"**", 1)
}

// ranked lists the rows of the workload plenty: correct ones first, the fastest on top.
func (f *figures) ranked() (rows []*measurement) {
	for i, r := range f.Rows {
		if r.Workload == "plenty" {
			rows = append(rows, &f.Rows[i])
		}
	}
	slices.SortStableFunc(rows, func(a, b *measurement) int {
		if a.correct() != b.correct() {
			if a.correct() {
				return -1
			}
			return 1
		}
		return cmp.Compare(b.Goodput, a.Goodput)
	})
	return rows
}

// table shows every strategy that was measured, under both workloads.
func (f *figures) table() string {
	var b strings.Builder
	row(&b, "strategy", "plenty: goodput/s", "× noop", "requests", "median ms", "99 % ms", "verdict",
		"flash sale: goodput/s", "verdict")
	row(&b, "---", "---:", "---:", "---:", "---:", "---:", "---", "---:", "---")
	for _, r := range f.ranked() {
		sale, found := "", ""
		if s := f.row(r.Strategy, r.Replicas, "flash-sale"); s != nil {
			sale, found = s.rate(), s.judged()
		}
		row(&b, r.label(), r.rate(), r.share(), number(float64(r.Requests)), number(r.P50), number(r.P99),
			marked(r.judged(), r.losesLate()), sale, found)
	}
	for _, s := range strategies {
		if s.Claim.TwoReplicas != stock.SellsNothing && f.row(s.Name, 2, "plenty") == nil {
			row(&b, label(s), "", "", "", "", "", "not measured", "", "")
		}
	}
	return b.String()
}

// faults says what came of each fault scenario for a strategy.
func (f *figures) faults(s stock.Strategy) []string {
	return f.row(s.Name, 2, "plenty").faults(s)
}

func (r *measurement) faults(s stock.Strategy) []string {
	return []string{
		r.fault("holder-dies", "loses units", onCrash(s.Claim)),
		r.fault("late-write", "loses an update", withCaveat(s.Claim.LateWrite, s.Claim.LateCaveat)),
		r.fault("client-retries", "deducts twice", s.Claim.ClientRetry.String()),
	}
}

// beside compares the figures with those of the tutorials, which are of one replica and 6,000 requests. Ours are of two
// replicas, except for the mutex.
func (f *figures) beside() string {
	var b strings.Builder
	row(&b, "in the text", "requests/s", "here", "requests/s", "goodput/s", "verdict")
	row(&b, "---", "---:", "---", "---:", "---:", "---")
	for _, theirs := range []struct {
		name     string
		rate     float64
		strategy string
		replicas int
	}{
		{"no lock", 671, "none", 2},
		{"`synchronized`", 51, "mutex", 1},
		{"`ReentrantLock`", 52, "mutex", 1},
		{"one UPDATE", 813, "update", 2},
		{"SELECT … FOR UPDATE", 64.6, "for-update", 2},
	} {
		ours := f.row(theirs.strategy, theirs.replicas, "plenty")
		if ours == nil {
			continue
		}
		row(&b, theirs.name, number(theirs.rate), ours.label(),
			number(ours.Answered), number(ours.Goodput), ours.found())
	}
	if one, two := f.row("update", 2, "plenty"), f.row("for-update", 2, "plenty"); one != nil && two != nil {
		row(&b, "UPDATE ÷ FOR UPDATE", "12.6", "", "", fmt.Sprintf("%.1f", one.Goodput/two.Goodput), "")
	}
	return b.String()
}

func (r *measurement) label() string {
	if r.Replicas == 1 {
		return "`" + r.Strategy + "`, 1 replica"
	}
	return label(*strategy(r.Strategy))
}

func (r *measurement) rate() string { return withInterval(r.Goodput, r.Interval) }

// share returns the share of noop's goodput.
func (r *measurement) share() string {
	if r.Noop == nil {
		return ""
	}
	return withInterval(*r.Noop, r.Share)
}

// withInterval returns a number, and how far the farther end of its interval is from it, in per cent.
func withInterval(v float64, interval *[2]float64) string {
	if interval == nil || v == 0 {
		return number(v)
	}
	return fmt.Sprintf("%s ±%.0f%%", number(v), 100*max(interval[1]/v-1, 1-interval[0]/v))
}

func number(v float64) string {
	if v == 0 {
		return ""
	}
	return fmt.Sprint(v)
}
