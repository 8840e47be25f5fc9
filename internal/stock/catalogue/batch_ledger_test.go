package catalogue_test

import (
	"regexp"
	"strconv"
	"testing"

	"stock/internal/servers/serverstest"
	"stock/internal/stock"
	"stock/internal/stock/stocktest"
)

func (c *crowd) wantLedger(t testing.TB, rows, units int) {
	t.Helper()
	var got struct{ Entries, Units int }
	err := c.deps.MySQL.Get(&got, "SELECT COUNT(*) AS entries, COALESCE(SUM(count), 0) AS units FROM ledger WHERE goods_id = ?", c.goods)
	if err != nil || got.Entries != rows || got.Units != units {
		t.Errorf("the ledger has %d rows of %d units, %v, want %d of %d", got.Entries, got.Units, err, rows, units)
	}
}

func TestABatchWithALedgerWritesEveryOrderDownInOneTransaction(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, "batch-ledger", 10)
	_, others, release := c.gatherOrders(t, stock.Request{Count: 2}, stock.Request{Count: 8, Key: "a"}, stock.Request{Count: 8}, stock.Request{Count: 3, Key: "b"})
	before := c.proxy.writes()
	c.proxy.look(regexp.MustCompile(`COMMIT$`))
	release()
	want(t, outcomes(others...), "7 remain", "sold out at 7", "sold out at 7", "4 remain")
	c.wantLeft(t, 4)
	c.wantLedger(t, 4, 6) // the order that is sold out and has no key cannot be sent again
	if commits := c.proxy.writes() - before; commits != 2 {
		t.Errorf("%d transactions for 5 requests, want 2", commits)
	}
}

func TestOrdersWithOneKeyInOneBatchAreCarriedOutOnce(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, "batch-ledger", 10)
	sale, soldOut := stock.Request{Count: 2, Key: "a"}, stock.Request{Count: 20, Key: "b"}
	_, others, release := c.gatherOrders(t, sale, soldOut, sale, stock.Request{Count: 1}, stock.Request{Count: 3, Key: "a"}, soldOut)
	release()
	want(t, outcomes(others...), "7 remain", "sold out at 7", "7 remain again", "6 remain", "key of another order", "sold out at 7 again")
	c.wantLeft(t, 6)
	c.wantLedger(t, 4, 4)
}

func TestABatchReplaysWhatIsCommittedAndSellsTheRest(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, "batch-ledger", 10)
	sale := stock.Request{GoodsID: c.goods, Count: 2, Key: "a"}
	want(t, outcomes(c.send(t.Context(), sale)), "8 remain")
	_, others, release := c.gatherOrders(t, stock.Request{Count: 1}, sale, stock.Request{Count: 1, Key: "a"}, stock.Request{Count: 1, Key: "b"}, sale)
	release()
	want(t, outcomes(others...), "6 remain", "8 remain again", "key of another order", "5 remain", "8 remain again")
	c.wantLeft(t, 5)
}

// Whoever has the key works on inside a transaction of its own: the others in the batch do not wait for it.
func TestABatchPassesByAKeyThatIsInProgress(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, "batch-ledger", 10)
	sale := stock.Request{GoodsID: c.goods, Count: 2, Key: "a"}
	p := park(t, c.Deducter, sale, stock.BeforeWrite)
	_, others, release := c.gatherOrders(t, stock.Request{Count: 1, Key: "b"}, sale, stock.Request{Count: 1})
	release()
	want(t, outcomes(others...), "8 remain", "in progress", "7 remain")
	if err := p.goOn(); err != nil {
		t.Error(err)
	}
	want(t, outcomes(c.send(t.Context(), sale)), "5 remain again")
	c.wantLeft(t, 5)
}

// The first replica has looked for the key before the second one sells with it.
func TestABatchIsUndoneWhereAnotherReplicaHasSoldWithItsKeyMeanwhile(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, "batch-ledger", 10)
	another := stocktest.NewService(t, c.deps).Deducter(t, "batch-ledger", stock.MySQL)
	sale := stock.Request{GoodsID: c.goods, Count: 2, Key: "a"}
	c.proxy.look(regexp.MustCompile(`UPDATE good_stock SET`))
	before := c.proxy.writes()
	deduct := c.proxy.hold()
	t.Cleanup(deduct)
	first := c.send(t.Context(), sale)
	serverstest.Eventually(t, "the first replica is about to deduct", func() bool { return c.proxy.writes() > before })
	c.proxy.look(regexp.MustCompile(`^$`)) // nothing else is stopped
	sell(t, another, sale)
	deduct()
	want(t, outcomes(first), "8 remain again")
	c.wantLeft(t, 8)
	c.wantLedger(t, 1, 2)
}

// The order with work to do has the key and wants the goods, the batch the other way round: the server undoes one of
// them.
func TestABatchAndAnOrderThatMeetInADeadlockAreBothAnswered(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, "batch-ledger", 10)
	another := stocktest.NewService(t, c.deps).Deducter(t, "batch-ledger", stock.MySQL)
	sale := stock.Request{GoodsID: c.goods, Count: 2, Key: "a"}
	c.proxy.look(regexp.MustCompile(`UPDATE good_stock SET`))
	before := c.proxy.writes()
	deduct := c.proxy.hold()
	t.Cleanup(deduct)
	batch := c.send(t.Context(), sale)
	serverstest.Eventually(t, "the batch is about to deduct", func() bool { return c.proxy.writes() > before })
	c.proxy.look(regexp.MustCompile(`^$`)) // nothing else is stopped
	p := park(t, another, sale, stock.BeforeWrite)
	deduct()
	waitForRowLock(t, c.deps)
	if err := p.goOn(); err != nil {
		t.Errorf("the order: %v", err)
	}
	if a := <-batch; a.err != nil || a.receipt.Remaining != 8 {
		t.Errorf("the batch: %+v, %v, want 8 remaining", a.receipt, a.err)
	}
	c.wantLeft(t, 8)
	c.wantLedger(t, 1, 2)
}

// One client who asks again and again for an order in progress must not make everybody else's batches slow.
func TestAKeyThatIsInProgressCostsItsBatchFewRoundTrips(t *testing.T) {
	t.Parallel()
	const others = 63
	c := newCrowd(t, "batch-ledger", 100)
	sale := stock.Request{GoodsID: c.goods, Count: 2, Key: "37"}
	p := park(t, c.Deducter, sale, stock.BeforeWrite)
	var requests []stock.Request
	for i := range others + 1 {
		requests = append(requests, stock.Request{Count: 1, Key: strconv.Itoa(i)})
	}
	requests[37] = sale
	before := c.proxy.writes()
	_, asked, release := c.gatherOrders(t, requests...)
	release()
	refused := 0
	for _, told := range outcomes(asked...) {
		if told == "in progress" {
			refused++
		}
	}
	if sent := c.proxy.writes() - before; refused != 1 || sent >= others {
		t.Errorf("%d requests refused after %d round trips, want 1, and fewer than requests", refused, sent)
	}
	if err := p.goOn(); err != nil {
		t.Error(err)
	}
	c.wantLeft(t, 100-1-others-2)
}

// Sold out is certain, although it may not be written down; so is that an order with the key of another was not
// carried out.
func TestABatchWithALedgerWhoseCommitIsLostSaysWhatIsCertain(t *testing.T) {
	t.Parallel()
	for cut, left := range map[cut]int64{beforeReply: 6, beforeSent: 9} {
		c := newCrowd(t, "batch-ledger", 10)
		sale, soldOut := stock.Request{Count: 2, Key: "a"}, stock.Request{Count: 20, Key: "b"}
		first, others, release := c.gatherOrders(t, sale, soldOut, sale, stock.Request{Count: 1}, stock.Request{Count: 20})
		before := c.proxy.writes()
		c.proxy.look(regexp.MustCompile(`COMMIT$`))
		committing := c.proxy.hold()
		release()
		serverstest.Eventually(t, "the first request commits", func() bool { return c.proxy.writes() > before })
		c.proxy.arm(cut) // for the COMMIT behind that one
		committing()
		want(t, outcomes(first), "9 remain")
		want(t, outcomes(others...), "unknown", "unavailable", "in progress", "unknown", "sold out at 6")
		c.wantLeft(t, left)
		sale.GoodsID = c.goods
		if receipt := untilAnswered(t, c.Deducter, sale); receipt.Replayed != (cut == beforeReply) {
			t.Errorf("sent again: %+v", receipt)
		}
	}
}
