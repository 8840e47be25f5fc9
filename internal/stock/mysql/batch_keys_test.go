package mysql_test

import (
	"context"
	"errors"
	"regexp"
	"testing"
	"time"

	"stock/internal/servers/serverstest"
	"stock/internal/stock"
	"stock/internal/stock/stocktest"
	"stock/internal/tcpproxy"
)

// wantLedger checks the number of the item's rows in the ledger, and their units in all.
func wantLedger(t testing.TB, r *stocktest.BatchReplica, rows, units int) {
	t.Helper()
	var got struct{ Entries, Units int }
	err := r.Deps.MySQL.Get(&got,
		"SELECT COUNT(*) AS entries, COALESCE(SUM(count), 0) AS units FROM ledger WHERE goods_id = ?", r.Item)
	if err != nil || got.Entries != rows || got.Units != units {
		t.Errorf("the ledger has %d rows of %d units, %v, want %d of %d", got.Entries, got.Units, err, rows, units)
	}
}

// The server stops waiting for the row because the first request's time is almost up. The batch tries again without it.
func TestARepeatInABatchIsSoldIfTheFirstRequestRunsOutOfTime(t *testing.T) {
	serverstest.Long(t)
	t.Parallel()
	r := newBatchReplica(t, "batch", 10)
	sale := stock.Request{GoodsID: r.Item, Count: 2, Key: "a"}
	var taken []int64
	for r.Deps.MySQLShares.TryAcquire(r.Item) {
		taken = append(taken, r.Item)
	}
	unlock := stocktest.LockRow(t, r.Deps.MySQL, r.Item)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	first := r.Send(ctx, sale)
	serverstest.Eventually(t, "the first request waits", func() bool { return r.Deps.MySQLShares.Waiting() == 1 })
	repeat := r.Send(t.Context(), sale)
	serverstest.Eventually(t, "the repeat waits", func() bool { return r.Waiting() == 1 })
	r.Proxy.Select(stocktest.Matching(deduct))
	before := r.Proxy.Count()
	for _, share := range taken {
		r.Deps.MySQLShares.Release(share)
	}
	serverstest.Eventually(t, "the batch tries again", func() bool { return r.Proxy.Count() >= before+2 })
	unlock()
	stocktest.WantAnswers(t, stocktest.Answers(repeat, first), "8 remain", "busy")
}

// fitting is in the statement that sells what fits of a batch.
var fitting = regexp.MustCompile("stock <= ")

// A second request with a key was certainly not carried out.
func TestALostCommitOfABatchLeavesTheOutcomeOfItsKeysUnknown(t *testing.T) {
	t.Parallel()
	for where, left := range map[tcpproxy.CutPoint]int64{tcpproxy.BeforeReply: 6, tcpproxy.BeforeRequest: 9} {
		r := newBatchReplica(t, "batch", 10)
		sale, soldOut := stock.Request{Count: 2, Key: "a"}, stock.Request{Count: 20, Key: "b"}
		first, others, release := r.GatherRequests(t,
			sale, soldOut, sale, stock.Request{Count: 1}, stock.Request{Count: 20})
		r.Proxy.Select(stocktest.Matching(fitting))
		r.Proxy.Cut(1, where)
		release()
		stocktest.WantAnswers(t, stocktest.Answers(first), "9 remain")
		stocktest.WantAnswers(t, stocktest.Answers(others...),
			"outcome unknown", "outcome unknown", "in progress", "outcome unknown", "outcome unknown")
		r.WantLeft(t, left)
		sale.GoodsID = r.Item
		receipt, err := stocktest.RetryRefusals(t.Context(), r.Deducter, sale)
		if err != nil || receipt.Replayed != (where == tcpproxy.BeforeReply) {
			t.Errorf("cut %s, sent again: %+v, %v", where, receipt, err)
		}
	}
}

func TestARepeatInABatchThatFailsIsNotInProgress(t *testing.T) {
	t.Parallel()
	r := newBatchReplica(t, "batch", 10)
	sale := stock.Request{Count: 2, Key: "a"}
	first, others, release := r.GatherRequests(t, sale, stock.Request{Count: 1, Key: "b"}, sale)
	r.Proxy.Select(stocktest.Matching(regexp.MustCompile("SELECT stock.* FROM good_stock")))
	r.Proxy.Cut(1, tcpproxy.BeforeRequest)
	release()
	stocktest.WantAnswers(t, stocktest.Answers(first), "9 remain")
	for i, answer := range others {
		if err := (<-answer).Err; !errors.Is(err, stock.ErrUnavailable) {
			t.Errorf("request %d: %v, want unavailable", i, err)
		}
	}
	r.WantLeft(t, 9)
}

// holdBeforeDeduct sends a request, and holds back its UPDATE and nothing else.
func holdBeforeDeduct(
	t testing.TB, r *stocktest.BatchReplica, req stock.Request,
) (request <-chan stocktest.Answer, release func()) {
	t.Helper()
	r.Proxy.Select(stocktest.Matching(deduct))
	before := r.Proxy.Count()
	release = r.Proxy.Hold()
	t.Cleanup(release)
	request = r.Send(t.Context(), req)
	serverstest.Eventually(t, "the batch is about to deduct", func() bool { return r.Proxy.Count() > before })
	r.Proxy.Select(func(tcpproxy.Message) bool { return false })
	return request, release
}

// The first replica has looked up the key before the second one sells with it.
func TestABatchIsRolledBackIfAnotherReplicaSellsWithItsKeyMeanwhile(t *testing.T) {
	t.Parallel()
	r := newBatchReplica(t, "batch", 10)
	another := stocktest.NewService(t, r.Deps).Deducter(t, "batch", stock.MySQL)
	sale := stock.Request{GoodsID: r.Item, Count: 2, Key: "a"}
	first, release := holdBeforeDeduct(t, r, sale)
	stocktest.Sell(t, another, sale)
	release()
	stocktest.WantAnswers(t, stocktest.Answers(first), "8 remain, replayed")
	r.WantLeft(t, 8)
	wantLedger(t, r, 1, 2)
}
