package report

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"stock/internal/must"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/verify"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// plenty returns round 1 of a strategy whose stock of 600 units meets the demand.
func plenty(strategy, claim string) history.Run {
	return history.Run{
		Cell: history.Cell{
			Subject: history.Subject{Strategy: strategy, Replicas: 2, Workload: history.Workload{Name: "plenty"}},
			Round:   1,
		},
		Claim: claim, Initial: map[int64]int64{1: 600},
	}
}

// play makes up the history of a service that answers two concurrent clients, a request per pace.
func play(run history.Run, requests int, pace time.Duration) *history.History {
	run.Users, run.Planned, run.Witness = 100, requests, "oracle"
	stock := run.Initial[1]
	h := &history.History{Run: run, End: &history.End{StartedNS: 1, EndedNS: 1 + int64(requests)*int64(pace)}}
	for i := range requests {
		op := history.Op{
			Kind: history.Deduct, Client: i % 2, Name: fmt.Sprint("order-", i), RequestID: fmt.Sprint("r", i),
			GoodsID: 1, Count: 1, SentNS: 1 + int64(i)*int64(pace),
			Status: 200, Outcome: history.Sold, Replica: fmt.Sprint("replica-", 1+i%2),
			Attempts: 1, WaitedUS: int64(i % 100), HeldUS: 5,
		}
		op.ReceivedNS = op.SentNS + 2*int64(pace)
		switch {
		case run.Claim == verify.ClaimSellsNothing:
			op.Remaining = stock
		case run.Strategy == "none" && i%10 == 0: // the write was overwritten
			op.Remaining = stock - 1
		case stock == 0 && run.Claim != verify.ClaimOversells:
			op.Outcome, op.Status = history.SoldOut, 409
		default:
			stock--
			op.Remaining = stock
		}
		h.Ops = append(h.Ops, op)
	}
	h.End.Final = map[int64]int64{1: stock}
	h.End.MySQLStatements = int64(2 * requests)
	h.End.DriverCPUNS = int64(requests) * int64(40*time.Microsecond+pace/500)
	return h
}

// buildSample reports a small run: seven strategies, two workloads, three rounds. change may change their paces.
func buildSample(change func(strategy string, pace time.Duration) time.Duration) *Report {
	b := NewBuilder(Environment{
		StartedAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Revision: "0123456789ab",
		Options: []string{"run", "--quick"}, Seed: 7,
		CPU: "Example CPU", Cores: 2, OS: "Example Linux", Kernel: "6.1", Arch: "amd64", Go: "go1.26", SharedHost: true,
		Servers: []Server{{
			Name: "mysql", Version: "9.7.0",
			Settings: map[string]string{"sync_binlog": "1", "innodb_flush_log_at_trx_commit": "1"},
		}},
	})
	for round := 1; round <= 3; round++ {
		for _, workload := range []string{"plenty", "flash-sale"} {
			for _, s := range []struct {
				run  history.Run
				pace time.Duration
			}{
				{plenty("noop", "sells-nothing"), 100 * time.Microsecond},
				{plenty("none", "loses-updates"), 400 * time.Microsecond},
				{plenty("decrement", "oversells"), 150 * time.Microsecond},
				{plenty("update", "correct"), 195 * time.Microsecond},
				{plenty("for-update", "correct"), 600 * time.Microsecond},
				{plenty("optimistic-version", "correct"), 205 * time.Microsecond},
				{plenty("mutex", "correct"), 300 * time.Microsecond},
			} {
				run, pace := s.run, s.pace
				run.Store = "mysql"
				switch run.Strategy {
				case "noop":
					run.Store = "none"
				case "none", "decrement":
					run.Control = true
				case "mutex":
					run.Replicas, run.Exclusive = 1, true
				}
				run.Workload.Name, run.Round, run.Seed = workload, round, 7
				if workload == "flash-sale" {
					run.Initial = map[int64]int64{1: 100}
				}
				// Rounds differ slightly, in another way for each strategy.
				pace += time.Duration((int(run.Strategy[0])+2*round)*round%5) * 3 * time.Microsecond
				if change != nil {
					pace = change(run.Strategy, pace)
				}
				if run.Strategy == "for-update" {
					run.Bounded = "600 of 6 000 requests: 0.4 s limit"
				}
				h := play(run, 600, 5*pace)
				b.Add(h, verify.Judge(h))
			}
		}
	}
	return b.Report()
}

// sample is shared by tests that do not modify it.
var sample = sync.OnceValue(func() *Report { return buildSample(nil) })

func find(t *testing.T, r *Report, strategy, workload string) *Row {
	t.Helper()
	i := slices.IndexFunc(r.Rows, func(row *Row) bool { return row.Strategy == strategy && row.Workload.Name == workload })
	if i < 0 {
		t.Fatalf("no row %s, %s", strategy, workload)
	}
	return r.Rows[i]
}

func TestWritersMatchTheirGoldenFiles(t *testing.T) {
	t.Parallel()
	r := sample()
	slower := buildSample(func(strategy string, pace time.Duration) time.Duration {
		if strategy == "update" {
			return pace * 2
		}
		return pace
	})
	slower.Rows[0].Result = verify.Wrong
	slower.Rows[1].Strategy = "renamed"
	for name, write := range map[string]func(*bytes.Buffer) error{
		"report.md":      func(w *bytes.Buffer) error { return r.WriteText(w, false) },
		"comparison.txt": func(w *bytes.Buffer) error { return Compare(r, slower).WriteText(w, false) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got bytes.Buffer
			must.Succeed(t, write(&got))
			path := filepath.Join("testdata", name)
			if *update {
				must.Succeed(t, os.WriteFile(path, got.Bytes(), 0o644))
			}
			want, err := os.ReadFile(path)
			must.Succeed(t, err)
			if !bytes.Equal(got.Bytes(), want) {
				t.Errorf("differs from %s (go test -update rewrites it); got\n%s", path, got.String())
			}
		})
	}
}

func TestColourChangesNoText(t *testing.T) {
	t.Parallel()
	r := sample()
	var without, with bytes.Buffer
	must.Succeed(t, r.WriteText(&without, false))
	must.Succeed(t, r.WriteText(&with, true))
	escapes := regexp.MustCompile("\x1b\\[[0-9;]*m")
	if !escapes.MatchString(with.String()) {
		t.Error("the text is not coloured")
	}
	if got := escapes.ReplaceAllString(with.String(), ""); got != without.String() {
		t.Errorf("the coloured text differs:\n%s", got)
	}
}

func TestDifferentLoadsAreNotCompared(t *testing.T) {
	t.Parallel()
	report := func(change func(*history.Run)) *Report {
		b := NewBuilder(Environment{})
		for _, run := range []history.Run{plenty("noop", "sells-nothing"), plenty("update", "correct")} {
			change(&run)
			h := play(run, 600, time.Millisecond)
			b.Add(h, verify.Judge(h))
		}
		return b.Report()
	}
	plain := report(func(*history.Run) {})
	for name, change := range map[string]func(*history.Run){
		"restocks":       func(run *history.Run) { run.Restock = 30 },
		"other restocks": func(run *history.Run) { run.Restock = 200 },
		"counts":         func(run *history.Run) { run.Counts = "1-3" },
		"skew":           func(run *history.Run) { run.Skew, run.Initial[2] = "zipf", 0 },
		"goods":          func(run *history.Run) { run.Initial[2] = 0 },
	} {
		other := report(change)
		if c := Compare(plain, other); len(c.Figures) > 0 || len(c.OnlyOld) != 2 || len(c.OnlyNew) != 2 {
			t.Errorf("%s: %d figures are compared, only in the old %v, only in the new %v",
				name, len(c.Figures), c.OnlyOld, c.OnlyNew)
		}
		if c := Compare(other, report(change)); len(c.Figures) == 0 {
			t.Errorf("%s: the same load is not compared", name)
		}
	}
}

func TestRestockedRowsAreNotRanked(t *testing.T) {
	t.Parallel()
	b := NewBuilder(Environment{})
	for _, run := range []history.Run{plenty("noop", "sells-nothing"), plenty("update", "correct")} {
		run.Restock = 30
		h := play(run, 600, time.Millisecond)
		b.Add(h, verify.Judge(h))
	}
	for _, row := range b.Report().Rows {
		if row.ShareOfNoop != nil || row.Ranked() || row.Result != verify.Correct {
			t.Errorf("%s: %s, share of noop %v, want correct and no comparison", row.Strategy, row.Result, row.ShareOfNoop)
		}
	}
}

func TestRowsWithAShortLoadAreJudgedAndNotRanked(t *testing.T) {
	t.Parallel()
	for pace, ranked := range map[time.Duration]bool{100 * time.Microsecond: false, time.Millisecond: true} {
		b := NewBuilder(Environment{})
		for _, run := range []history.Run{plenty("noop", "sells-nothing"), plenty("update", "correct")} {
			h := play(run, 600, pace)
			b.Add(h, verify.Judge(h))
		}
		r := b.Report()
		row := find(t, r, "update", "plenty")
		var text bytes.Buffer
		err := r.WriteText(&text, false)
		if row.Result != verify.Correct || row.Ranked() != ranked ||
			(row.ShareOfNoop != nil) != ranked || err != nil || strings.Contains(text.String(), notRanked) == ranked {
			t.Errorf("%v: %s, ranked %v, %v\n%s", pace, row.Result, row.Ranked(), err, &text)
		}
	}
}

func TestShareOfNoopAccountsForScarceStock(t *testing.T) {
	t.Parallel()
	r := sample()
	for _, workload := range []string{"plenty", "flash-sale"} {
		row := find(t, r, "update", workload)
		if row.ShareOfNoop == nil || *row.ShareOfNoop < 0.45 || *row.ShareOfNoop > 0.55 {
			t.Errorf("%s: update takes twice as long as noop, but has a share of %v", row.Label(), share(row.ShareOfNoop))
		}
	}
}

// rowWith returns a ranked row with these shares of noop, and its interval.
func rowWith(strategy string, shares ...float64) *Row {
	row := &Row{
		Subject: history.Subject{Strategy: strategy, Workload: history.Workload{Name: "plenty"}},
		Verdict: verify.Verdict{Result: verify.Correct}, Claim: verify.ClaimCorrect,
	}
	noop := &Row{Baseline: true}
	for i, share := range shares {
		row.Rounds = append(row.Rounds, Cell{Round: i, ElapsedS: 1, GoodputPerS: 10_000 * share})
		noop.Rounds = append(noop.Rounds, Cell{
			Round: i, ElapsedS: 1, Verdict: verify.Verdict{Figures: verify.Figures{Covered: 10_000}},
		})
	}
	row.addShares(noop)
	return row
}

func TestShareOfNoopHasAnInterval(t *testing.T) {
	t.Parallel()
	row := rowWith("update", 0.02, 0.0202, 0.0198)
	// ln: s = 0.01, t(2) = 4.303, half width 0.02485
	if row.share() != 0.0199993 || row.ShareInterval == nil || math.Abs(row.ShareInterval.Low-0.01951) > 1e-5 ||
		math.Abs(row.ShareInterval.High-0.0205) > 1e-5 {
		t.Errorf("got %v %+v", row.share(), row.ShareInterval)
	}
	if got := plusMinus(share(row.ShareOfNoop), spread(row.share(), row.ShareInterval)); got != "0.020 ±2%" {
		t.Errorf("shown as %q", got)
	}
}

func TestFiguresOfARow(t *testing.T) {
	t.Parallel()
	row := find(t, sample(), "update", "flash-sale")
	if row.Initial != 300 || row.Final != 0 || row.Sold != 300 || row.Stock != 100 || row.RequestsSent != 1800 ||
		row.RequestsPlanned != 1800 {
		t.Errorf("counts are not the sums of three rounds: %+v", row)
	}
	if row.Outcomes[history.Sold] != 300 || row.Outcomes[history.SoldOut] != 1500 {
		t.Errorf("got outcomes %v", row.Outcomes)
	}
	if row.MySQLStatementsPerSale != 12 || row.AttemptsPerSale != 1 {
		t.Errorf("got %v statements and %v attempts per sale, want 12 and 1", row.MySQLStatementsPerSale, row.AttemptsPerSale)
	}
	if row.DriverCPUUSPerRequest < 41.9 || row.DriverCPUUSPerRequest > 42.2 {
		t.Errorf("the load driver used %v µs of CPU per request, want 42", row.DriverCPUUSPerRequest)
	}
	if want := map[string]float64{"replica-1": 0.5, "replica-2": 0.5}; !reflect.DeepEqual(row.ReplicaShares, want) {
		t.Errorf("got shares %v, want %v", row.ReplicaShares, want)
	}
	if len(row.Rounds) != 3 || row.Rounds[1].Round != 2 || row.Rounds[1].Sold != 100 {
		t.Errorf("rounds are not those of the runs: %+v", row.Rounds)
	}
}

// decrement is the history of a control that oversells once demand exceeds the stock.
func decrement(stock int64) *history.History {
	run := plenty("decrement", "oversells")
	run.Workload.Name, run.Control, run.Initial = fmt.Sprint("stock of ", stock), true, map[int64]int64{1: stock}
	return play(run, 600, time.Millisecond)
}

func TestUnprovokedControlMakesTheRunInconclusive(t *testing.T) {
	t.Parallel()
	b := NewBuilder(Environment{})
	h := decrement(600)
	b.Add(h, verify.Judge(h))
	if r := b.Report(); !r.Inconclusive || r.Err() == nil ||
		!strings.Contains(r.Err().Error(), "control decrement came out clean: demand never exceeded the stock") {
		t.Errorf("inconclusive: %t, problems: %q", r.Inconclusive, r.Problems)
	}

	h = decrement(100)
	b.Add(h, verify.Judge(h))
	if r := b.Report(); r.Err() != nil || r.Inconclusive {
		t.Errorf("it was caught in one row, but the problems are %q", r.Problems)
	}
}

func TestControlThatRefusesCorrectlyIsClean(t *testing.T) {
	t.Parallel()
	b := NewBuilder(Environment{})
	run := plenty("decrement", "correct")
	run.Workload.Name, run.Control, run.Initial = "flash-sale", true, map[int64]int64{1: 100}
	h := play(run, 600, time.Millisecond)
	h.Run.Claim = "oversells"
	b.Add(h, verify.Judge(h))
	r := b.Report()
	const want = "control decrement came out clean: a run that misses"
	if !r.Inconclusive || r.Err() == nil || !strings.Contains(r.Err().Error(), want) {
		t.Errorf("inconclusive: %t, problems: %q", r.Inconclusive, r.Problems)
	}
}

func TestAControlThatPassesALoadIsNotRanked(t *testing.T) {
	t.Parallel()
	b := NewBuilder(Environment{})
	run := plenty("decrement", "correct")
	run.Control = true
	h := play(run, 600, time.Millisecond)
	b.Add(h, verify.Judge(h))
	if row := b.Report().Rows[0]; row.Ranked() || row.remark() != "unranked: control" {
		t.Errorf("a correct control is ranked: %t, remark %q", row.Ranked(), row.remark())
	}
}

func TestALateWriteThatWasNotPlayedIsShownAsClaimed(t *testing.T) {
	t.Parallel()
	for outcome, want := range map[Outcome]string{
		"": "loses a late write (claimed, not played)", Skipped: "loses a late write (claimed, not played)",
		Unsafe: "loses a late write",
	} {
		row := rowWith("lock-redlock", 0.5)
		row.LosesLateWrite, row.Faults = true, map[string]string{lateWrite: string(outcome)}
		if got := row.remark(); got != want {
			t.Errorf("%q: %q, want %q", outcome, got, want)
		}
	}
}

func TestBaselineHasAShareOfOne(t *testing.T) {
	t.Parallel()
	for _, workload := range []string{"plenty", "flash-sale"} {
		row := find(t, sample(), "noop", workload)
		if row.ShareOfNoop == nil || *row.ShareOfNoop != 1 || row.Result != verify.Correct || !row.Baseline ||
			!row.ClaimHeld {
			t.Errorf("%s: share %s, %s, claim held %t", row.Label(), share(row.ShareOfNoop), row.Result, row.ClaimHeld)
		}
	}
}

func TestBaselineThatSellsIsShownAsWrong(t *testing.T) {
	t.Parallel()
	b := NewBuilder(Environment{})
	h := play(plenty("noop", "sells-nothing"), 600, time.Millisecond)
	h.End.Final[1]--
	b.Add(h, verify.Judge(h))
	var out bytes.Buffer
	must.Succeed(t, b.Report().WriteText(&out, false))
	if text := out.String(); !strings.Contains(text, "WRONG") || !strings.Contains(text, "nothing should be sold") ||
		strings.Contains(text, "sells nothing") {
		t.Errorf("got\n%s", text)
	}
}

func TestOpenLoopReportsItsSendLag(t *testing.T) {
	t.Parallel()
	b := NewBuilder(Environment{})
	for round, lag := range []int64{1e6, 3e6} {
		run := plenty("update", "correct")
		run.Rate, run.Round = 500, 1+round
		h := play(run, 600, time.Millisecond)
		h.End.MeanLagNS, h.End.MaxLagNS, h.End.Dropped = lag, 10*lag, 7
		b.Add(h, verify.Judge(h))
	}
	r := b.Report()
	row := r.Rows[0]
	if row.SendLagMS == nil || *row.SendLagMS != (Lag{2, 30}) || *row.Rounds[0].SendLagMS != (Lag{1, 10}) ||
		row.Dropped != 14 {
		t.Errorf("got %+v of %+v, %d dropped", row.SendLagMS, row.Rounds[0].SendLagMS, row.Dropped)
	}
	var out bytes.Buffer
	if err := r.WriteText(&out, false); err != nil ||
		!strings.Contains(out.String(), "sent 2.00 ms late on average, 30.0 ms at most; 14 dropped") {
		t.Errorf("%v\n%s", err, out.String())
	}
	if closed := find(t, sample(), "update", "plenty"); closed.SendLagMS != nil || closed.Late() != "" {
		t.Errorf("a closed loop has a send lag of %+v", closed.SendLagMS)
	}
}

func TestNothingRunIsAProblem(t *testing.T) {
	t.Parallel()
	r := NewBuilder(Environment{}).Report()
	if r.Err() == nil || r.ClaimsHeld {
		t.Errorf("a report without rows has no problem")
	}
}

func TestMissingRunsAreAProblem(t *testing.T) {
	t.Parallel()
	b := NewBuilder(Environment{})
	h := play(plenty("update", "correct"), 600, time.Millisecond)
	b.Add(h, verify.Judge(h))
	second := h.Run.Cell
	second.Round = 2
	for _, plan := range []history.Cell{h.Run.Cell, second} { // the row may run in another round than planned
		b.Expect([]history.Cell{plan})
		if r := b.Report(); r.Err() != nil || !r.ClaimsHeld {
			t.Errorf("the run is complete, but the problems are %q", r.Problems)
		}
	}
	b.Expect([]history.Cell{h.Run.Cell, second})
	want := []string{"1 of 2 planned runs are missing: the run ended early"}
	if r := b.Report(); r.ClaimsHeld || !slices.Equal(r.Problems, want) {
		t.Errorf("claims held: %t, problems: %q", r.ClaimsHeld, r.Problems)
	}
}

func TestInterruptedRunIsReported(t *testing.T) {
	t.Parallel()
	b := NewBuilder(Environment{})
	h := play(plenty("update", "correct"), 300, time.Millisecond)
	h.End = nil
	b.Add(h, verify.Judge(h))
	r := b.Report()
	if row := r.Rows[0]; row.Result != verify.Inconclusive || row.ThroughputPerS == 0 || r.Err() == nil {
		t.Errorf("got %+v, problems %q", row, r.Problems)
	}
	var out bytes.Buffer
	if err := r.WriteText(&out, false); err != nil || !strings.Contains(out.String(), "INCONCLUSIVE") {
		t.Errorf("%v: %s", err, out.String())
	}
}

func TestOpenLoopMeasuresLatencyFromTheIntendedTime(t *testing.T) {
	t.Parallel()
	b := NewBuilder(Environment{})
	h := play(plenty("update", "correct"), 300, time.Millisecond)
	for i := range h.Ops {
		h.Ops[i].SentNS += int64(time.Second)
		h.Ops[i].ReceivedNS += int64(time.Second)
		h.Ops[i].IntendedNS = h.Ops[i].SentNS - int64(time.Second)
	}
	if got := b.Add(h, verify.Judge(h)).LatencyMS.Mean; got != 1002 {
		t.Errorf("got %v ms, want a second of send lag and 2 ms", got)
	}
}

func TestJSONSurvivesARoundTrip(t *testing.T) {
	t.Parallel()
	r := sample()
	var text bytes.Buffer
	must.Succeed(t, r.WriteJSON(&text))
	got, err := ReadJSON(&text)
	must.Succeed(t, err)
	if !reflect.DeepEqual(got, r) {
		t.Error("the report that was read differs from the one that was written")
	}
}

func TestLatenciesThatAreNotKnownAreLeftOut(t *testing.T) {
	t.Parallel()
	b := NewBuilder(Environment{})
	h := play(plenty("update", "correct"), 600, time.Millisecond)
	for i := range 40 { // of which 30 are beyond the 95th percentile
		h.Ops[i].ReceivedNS += 2e8 // a third of the round
	}
	b.Add(h, verify.Judge(h))
	r := b.Report()
	var text bytes.Buffer
	must.Succeed(t, r.WriteText(&text, false))
	if s := text.String(); !strings.Contains(s, "| median ms |") || strings.Contains(s, "| 99 % ms |") ||
		!strings.Contains(s, notKnown) {
		t.Errorf("the text is\n%s", s)
	}
}

func TestReadRefusesAnotherSchema(t *testing.T) {
	t.Parallel()
	if _, err := ReadJSON(strings.NewReader(`{"schema":"stock-lab/99"}`)); err == nil ||
		!strings.Contains(err.Error(), "stock-lab/99") {
		t.Errorf("got %v", err)
	}
}

func TestPasswordsStayOutOfTheReport(t *testing.T) {
	t.Parallel()
	given := []string{
		"run", "--mysql-dsn", "root:s3:cr@t@tcp(db:3306)/stock", "--mysql-dsn=root:s3:cr@t@tcp(db:3306)/stock", "--users=5",
	}
	want := []string{
		"run", "--mysql-dsn", "root:***@tcp(db:3306)/stock", "--mysql-dsn=root:***@tcp(db:3306)/stock", "--users=5",
	}
	if got := NewBuilder(Environment{Options: given}).Report().Environment.Options; !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
