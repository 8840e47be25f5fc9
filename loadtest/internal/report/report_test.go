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

// reported returns the report of some histories.
func reported(histories ...*history.History) *Report {
	b := NewBuilder(Environment{})
	for _, h := range histories {
		b.Add(h, verify.Judge(h))
	}
	return b.Report()
}

// noopAndUpdate reports a round of the baseline and of a strategy, of which something is changed.
func noopAndUpdate(pace time.Duration, change func(*history.Run)) *Report {
	noop, update := plenty("noop", "sells-nothing"), plenty("update", "correct")
	change(&noop)
	change(&update)
	return reported(play(noop, 600, pace), play(update, 600, pace))
}

// text returns what a report is for a terminal.
func text(t *testing.T, r *Report) string {
	t.Helper()
	var b strings.Builder
	must.Succeed(t, r.WriteText(&b, false))
	return b.String()
}

// mustSay fails the test unless a text has all of some parts.
func mustSay(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, want := range parts {
		if !strings.Contains(text, want) {
			t.Errorf("the text lacks %q:\n%s", want, text)
		}
	}
}

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
	var with bytes.Buffer
	must.Succeed(t, r.WriteText(&with, true))
	escapes := regexp.MustCompile("\x1b\\[[0-9;]*m")
	if !escapes.MatchString(with.String()) {
		t.Error("the text is not coloured")
	}
	if got := escapes.ReplaceAllString(with.String(), ""); got != text(t, r) {
		t.Errorf("the coloured text differs:\n%s", got)
	}
}

func TestDifferentLoadsAreNotCompared(t *testing.T) {
	t.Parallel()
	plain := noopAndUpdate(time.Millisecond, func(*history.Run) {})
	for name, change := range map[string]func(*history.Run){
		"restocks":       func(run *history.Run) { run.Restock = 30 },
		"other restocks": func(run *history.Run) { run.Restock = 200 },
		"counts":         func(run *history.Run) { run.Counts = "1-3" },
		"skew":           func(run *history.Run) { run.Skew, run.Initial[2] = "zipf", 0 },
		"goods":          func(run *history.Run) { run.Initial[2] = 0 },
	} {
		other := noopAndUpdate(time.Millisecond, change)
		if c := Compare(plain, other); len(c.Figures) > 0 || len(c.OnlyOld) != 2 || len(c.OnlyNew) != 2 {
			t.Errorf("%s: %d figures are compared, only in the old %v, only in the new %v",
				name, len(c.Figures), c.OnlyOld, c.OnlyNew)
		}
		if c := Compare(other, noopAndUpdate(time.Millisecond, change)); len(c.Figures) == 0 {
			t.Errorf("%s: the same load is not compared", name)
		}
	}
}

func TestRowsThatCannotBeComparedAreJudgedAndNotRanked(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pace             time.Duration
		change           func(*history.Run)
		ranked, hasShare bool
		says             string
	}{
		"usual":        {time.Millisecond, func(*history.Run) {}, true, true, ""},
		"a short load": {100 * time.Microsecond, func(*history.Run) {}, false, false, notRanked},
		"restocks":     {time.Millisecond, func(run *history.Run) { run.Restock = 30 }, false, false, "unranked: restocked"},
		"a control":    {time.Millisecond, func(run *history.Run) { run.Control = true }, false, true, "unranked: control"},
	} {
		r := noopAndUpdate(c.pace, c.change)
		row := find(t, r, "update", "plenty")
		if row.Result != verify.Correct || row.Ranked() != c.ranked || (row.ShareOfNoop != nil) != c.hasShare {
			t.Errorf("%s: %s, ranked %v, share of noop %v", name, row.Result, row.Ranked(), row.ShareOfNoop)
		}
		mustSay(t, text(t, r), c.says)
		if said := strings.Contains(text(t, r), notRanked); said != (c.says == notRanked) {
			t.Errorf("%s: it says that its load was short: %v", name, said)
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
	if row.AttemptsPerSale != 1 {
		t.Errorf("got %v attempts per sale, want 1", row.AttemptsPerSale)
	}
	if want := map[string]float64{"replica-1": 0.5, "replica-2": 0.5}; !reflect.DeepEqual(row.ReplicaShares, want) {
		t.Errorf("got shares %v, want %v", row.ReplicaShares, want)
	}
	if len(row.Rounds) != 3 || row.Rounds[1].Round != 2 || row.Rounds[1].Sold != 100 {
		t.Errorf("rounds are not those of the runs: %+v", row.Rounds)
	}
}

func TestALateWriteThatWasNotPlayedIsShownAsClaimed(t *testing.T) {
	t.Parallel()
	for outcome, want := range map[Effect]string{
		"":      "a late write loses an update (claimed, not played)",
		Skipped: "a late write loses an update (claimed, not played)",
		Unsafe:  "a late write loses an update",
	} {
		row := rowWith("lock-redlock", 0.5)
		row.LateLosesUpdate, row.Faults = true, map[string]string{lateWrite: string(outcome)}
		if got := row.remark(); got != want {
			t.Errorf("%q: %q, want %q", outcome, got, want)
		}
	}
}

func TestOpenLoopReportsItsSendLag(t *testing.T) {
	t.Parallel()
	var rounds []*history.History
	for round, lag := range []int64{1e6, 3e6} {
		run := plenty("update", "correct")
		run.Rate, run.Round = 500, 1+round
		h := play(run, 600, time.Millisecond)
		h.End.MeanLagNS, h.End.MaxLagNS, h.End.Dropped = lag, 10*lag, 7
		rounds = append(rounds, h)
	}
	r := reported(rounds...)
	row := r.Rows[0]
	if row.SendLagMS == nil || *row.SendLagMS != (Lag{2, 30}) || *row.Rounds[0].SendLagMS != (Lag{1, 10}) ||
		row.Dropped != 14 {
		t.Errorf("got %+v of %+v, %d dropped", row.SendLagMS, row.Rounds[0].SendLagMS, row.Dropped)
	}
	mustSay(t, text(t, r), "sent 2.00 ms late on average, 30.0 ms at most; 14 dropped")
	if closed := find(t, sample(), "update", "plenty"); closed.SendLagMS != nil || closed.Late() != "" {
		t.Errorf("a closed loop has a send lag of %+v", closed.SendLagMS)
	}
}

func TestInterruptedRunIsReported(t *testing.T) {
	t.Parallel()
	h := play(plenty("update", "correct"), 300, time.Millisecond)
	h.End = nil
	r := reported(h)
	if row := r.Rows[0]; row.Result != verify.Inconclusive || row.ThroughputPerS == 0 || r.Err() == nil {
		t.Errorf("got %+v, problems %q", row, r.Problems)
	}
	mustSay(t, text(t, r), "INCONCLUSIVE")
}

func TestOpenLoopMeasuresLatencyFromTheIntendedTime(t *testing.T) {
	t.Parallel()
	h := play(plenty("update", "correct"), 300, time.Millisecond)
	for i := range h.Ops {
		h.Ops[i].SentNS += int64(time.Second)
		h.Ops[i].ReceivedNS += int64(time.Second)
		h.Ops[i].IntendedNS = h.Ops[i].SentNS - int64(time.Second)
	}
	if got := reported(h).Rows[0].LatencyMS.Mean; got != 1002 {
		t.Errorf("got %v ms, want a second of send lag and 2 ms", got)
	}
}

func TestJSONSurvivesARoundTrip(t *testing.T) {
	t.Parallel()
	r := sample()
	var written bytes.Buffer
	must.Succeed(t, r.WriteJSON(&written))
	got, err := ReadJSON(&written)
	must.Succeed(t, err)
	if !reflect.DeepEqual(got, r) {
		t.Error("the report that was read differs from the one that was written")
	}
}

func TestLatenciesThatAreNotKnownAreLeftOut(t *testing.T) {
	t.Parallel()
	h := play(plenty("update", "correct"), 600, time.Millisecond)
	for i := range 40 { // of which 30 are beyond the 95th percentile
		h.Ops[i].ReceivedNS += 2e8 // a third of the round
	}
	got := text(t, reported(h))
	mustSay(t, got, "| median ms |", notKnown)
	if strings.Contains(got, "| 99 % ms |") {
		t.Errorf("the text is\n%s", got)
	}
}

func TestReadRefusesAnotherSchema(t *testing.T) {
	t.Parallel()
	if _, err := ReadJSON(strings.NewReader(`{"schema":"stock-lab/99"}`)); err == nil ||
		!strings.Contains(err.Error(), "stock-lab/99") {
		t.Errorf("got %v", err)
	}
}
