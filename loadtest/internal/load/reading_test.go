package load

import (
	"maps"
	"net/http"
	"testing"
	"time"

	"stock/loadtest/internal/history"
	"stock/loadtest/internal/verify"
)

func TestFinalStockIncludesRequestsThatTimedOut(t *testing.T) {
	t.Parallel()
	s := &shop{}
	done := make(chan struct{})
	s.before = func(_ http.ResponseWriter, n int) bool {
		if n == 300 {
			// The client times out long before, and the stock does not change for much longer than patience.quiet.
			time.Sleep(600 * time.Millisecond)
			s.take()
			close(done)
		}
		return n == 300
	}
	runner := s.open(t, Config{Requests: 300, Stock: 1000, Timeout: 200 * time.Millisecond})
	runner.patience.service, runner.patience.limit = time.Second, 5*time.Second
	m := runOne(t, runner)
	if m.Verdict.Outcomes[history.Unknown] == 0 {
		t.Fatal("no outcome is unknown")
	}
	<-done
	if !maps.Equal(m.History.End.Final, s.stock) {
		t.Errorf("final stock %v, want %v", m.History.End.Final, s.stock)
	}
}

func TestStockThatNeverStopsChangingIsInconclusive(t *testing.T) {
	t.Parallel()
	s := &shop{}
	s.onRead = func(n int) int {
		if n > 1 { // the first one is before the run
			s.stock[1]--
		}
		return 0
	}
	m := runOne(t, s.open(t, Config{Requests: 300, Stock: 1000, Timeout: 100 * time.Millisecond}))
	if m.History.End == nil || m.History.End.Final != nil || m.Verdict.Result != verify.Inconclusive {
		t.Errorf("end %+v, %s: want no final stock and no verdict", m.History.End, m.Verdict.Result)
	}
}

// A sale counts only when it is durable, so the run lasts until all are, however long that takes.
func TestRunThatWritesBehindLastsUntilEverySaleIsDurable(t *testing.T) {
	t.Parallel()
	s := &shop{writesBehind: true}
	runner := s.open(t, Config{Requests: 300, Stock: 1000})
	runner.patience.limit = 50 * time.Millisecond // writing everything takes much longer
	m := runOne(t, runner)
	if m.Verdict.Result != verify.Correct || m.Verdict.Good != 300 {
		t.Errorf("%s, %d units: %v", m.Verdict.Result, m.Verdict.Good, m.Verdict.Evidence)
	}
	if m.History.End.EndedNS < s.writtenNS {
		t.Errorf("the run ended %v before its last sale was durable", time.Duration(s.writtenNS-m.History.End.EndedNS))
	}
}

// While sales and a restock are still to be written, both stores may have the same stock for a moment.
func TestStoresThatAgreeTooEarlyAreReadAgain(t *testing.T) {
	t.Parallel()
	s := &shop{writesBehind: true, lateRestock: 5}
	m := runOne(t, s.open(t, Config{Requests: 300, Stock: 1000}))
	if m.Verdict.Result != verify.Correct || !maps.Equal(m.History.End.Final, map[int64]int64{1: 700}) {
		t.Errorf("%s, final stock %v: %v", m.Verdict.Result, m.History.End.Final, m.Verdict.Evidence)
	}
	if m.History.End.EndedNS < s.writtenNS {
		t.Errorf("the run ended %v before its restock was durable", time.Duration(s.writtenNS-m.History.End.EndedNS))
	}
}

func TestSalesThatAreNeverWrittenAreLost(t *testing.T) {
	t.Parallel()
	s := &shop{writesBehind: true, neverWritten: 5}
	runner := s.open(t, Config{Requests: 300, Stock: 1000})
	runner.patience.limit = 50 * time.Millisecond
	m := runOne(t, runner)
	end := m.History.End
	if !maps.Equal(end.Seller, map[int64]int64{1: 700}) || !maps.Equal(end.Final, map[int64]int64{1: 705}) {
		t.Errorf("the stores have %v and %v, want 700 and 705 units", end.Seller, end.Final)
	}
	if m.Verdict.Result != verify.Wrong || m.Verdict.LostUpdates != 5 || end.EndedNS < s.writtenNS {
		t.Errorf("%s, %d lost, ended at %d, last write at %d: %v",
			m.Verdict.Result, m.Verdict.LostUpdates, end.EndedNS, s.writtenNS, m.Verdict.Evidence)
	}
}
