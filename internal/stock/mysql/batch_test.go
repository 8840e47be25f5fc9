package mysql_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"

	"stock/internal/must"
	"stock/internal/servers/serverstest"
	"stock/internal/stock"
	"stock/internal/stock/batching"
	"stock/internal/stock/stocktest"
)

var (
	anyQuery = regexp.MustCompile(`(?s)^.{4}\x03`) // COM_QUERY, one for each round trip
	commit   = regexp.MustCompile(`COMMIT$`)
	deduct   = regexp.MustCompile(`UPDATE good_stock SET`)
)

// deductFitting takes what fits of a batch that does not fit as a whole.
var deductFitting = regexp.MustCompile(`stock >= \d+ AND stock <= \d+$`)

// newBatchReplica makes a replica with a strategy. Its proxy counts queries.
func newBatchReplica(t testing.TB, strategy string, units int64) *stocktest.BatchReplica {
	t.Helper()
	a := stocktest.NewAddresses(t, stock.NeedMySQL)
	proxy, dsn := stocktest.ProxyMySQL(t, a.MySQL)
	proxy.Select(stocktest.Matching(anyQuery))
	a.MySQL = dsn
	on := stocktest.Strategy(t, strategy).Stores[0]
	return stocktest.NewBatchReplica(t, strategy, on, a.Connect(t), proxy, units)
}

// requestsFor reads requests such as "2, 3 k": for 2 units, and for 3 with the key k.
func requestsFor(text string) (requests []stock.Request) {
	for words := range strings.SplitSeq(text, ",") {
		var req stock.Request
		if n, _ := fmt.Sscan(words, &req.Count, &req.Key); n > 0 {
			requests = append(requests, req)
		}
	}
	return requests
}

// A request for one unit is on its way while the others arrive.
func TestRequestsThatWaitShareABatch(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, strategy string
		units          int64
		sold           string // before
		requests       string
		answers        string
		left           int64
		sent           int    // round trips, with that of the first request; 0: any
		ledger         [2]int // rows and units
	}{
		{"one request", "batch", 10, "", "", "", 9, 1, [2]int{}},
		{"enough for all", "batch", 100, "", "2, 5, 1, 30", "97 remain|92 remain|91 remain|61 remain", 61, 2, [2]int{}},
		{
			"what fits", "batch", 11, "", "4, 7, 5, 2, 1, 1",
			"6 remain|sold out at 6|1 remain|sold out at 1|0 remain|sold out at 0", 0, 4, [2]int{},
		},
		{
			"what fits of all slots", "escrow", 11, "", "4, 7, 5, 2, 1, 1",
			"0 remain|sold out at 6|0 remain|sold out at 1|0 remain|sold out at 0", 0, 9, [2]int{},
		},
		{
			"what fits of holds", "reserve", 10, "", "4, 8, 5, 1",
			"5 remain|sold out at 5|0 remain|sold out at 0", 0, 0, [2]int{},
		},
		{"nothing fits", "batch", 3, "", "5, 3, 4", "sold out at 2|sold out at 2|sold out at 2", 2, 3, [2]int{}},
		// The first request numbers the replica.
		{"nothing fits all slots", "escrow", 3, "", "5, 3, 4", "sold out at 2|sold out at 2|sold out at 2", 2, 4, [2]int{}},
		{
			"several keys", "batch", 10, "", "2, 8 a, 8, 3 b", "7 remain|sold out at 7|sold out at 7|4 remain",
			4, 4, [2]int{2, 3},
		},
		{
			"a key twice", "batch", 10, "", "2 a, 20 b, 2 a, 1, 3 a, 20 b",
			"7 remain|sold out at 7|7 remain, replayed|6 remain|key reused|sold out at 7, replayed", 6, 5, [2]int{2, 2},
		},
		{
			"a key that was used before", "batch", 10, "2 a", "1, 2 a, 1 a, 1 b, 2 a",
			"6 remain|8 remain, replayed|key reused|5 remain|8 remain, replayed", 5, 0, [2]int{2, 3},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := newBatchReplica(t, test.strategy, test.units)
			for _, sale := range requestsFor(test.sold) {
				sale.GoodsID = r.Item
				stocktest.Sell(t, r, sale)
			}
			before := r.Proxy.Count()
			first, others, release := r.GatherRequests(t, requestsFor(test.requests)...)
			release()
			if got := strings.Join(stocktest.Answers(others...), "|"); got != test.answers {
				t.Errorf("the answers are %s, want %s", got, test.answers)
			}
			if a := <-first; a.Err != nil {
				t.Error(a.Err)
			}
			if sent := r.Proxy.Count() - before; sent != test.sent && test.sent > 0 {
				t.Errorf("%d round trips, want %d", sent, test.sent)
			}
			r.WantLeft(t, test.left)
			wantLedger(t, r, test.ledger[0], test.ledger[1])
		})
	}
}

// The batch locks the index before the row, the other transaction the row before the index. The server rolls back the
// one that has written less: the batch.
func TestABatchIsRetriedAfterADeadlock(t *testing.T) {
	t.Parallel()
	r := newBatchReplica(t, "batch", 100)
	other := stocktest.Begin(t, r.Deps.MySQL)
	for range 20 {
		_, err := other.Exec("INSERT INTO good_stock (goods_id, stock) VALUES (?, 1)", stocktest.NewItem())
		must.Succeed(t, err)
	}
	var row int64
	must.Succeed(t, r.Deps.MySQL.Get(&row, "SELECT id FROM good_stock WHERE goods_id = ?", r.Item))
	_, err := other.Exec("SELECT stock FROM good_stock WHERE id = ? FOR UPDATE", row)
	must.Succeed(t, err)
	request := r.Ask(t.Context(), r.Item, 1)
	stocktest.WaitForRowLock(t, r.Deps.MySQL)
	if _, err := other.Exec("SELECT stock FROM good_stock WHERE goods_id = ? FOR UPDATE", r.Item); err != nil {
		t.Fatalf("the server rolled back the other transaction, not the batch: %v", err)
	}
	must.Succeed(t, other.Rollback())
	if a := <-request; a.Err != nil || a.Receipt.Remaining != 99 || a.Receipt.Attempts < 2 {
		t.Errorf("%+v, %v, want 99 remaining after at least 2 attempts", a.Receipt, a.Err)
	}
}

func TestARequestThatIsCancelledBeforeItsBatchIsSentIsNotDeducted(t *testing.T) {
	t.Parallel()
	r := newBatchReplica(t, "batch", 100)
	_, others, release := r.Gather(t, 2)
	ctx, cancel := context.WithCancel(t.Context())
	cancelled := r.Ask(ctx, r.Item, 50)
	serverstest.Eventually(t, "the request waits", func() bool { return r.Waiting() == 2 })
	deadline, end := context.WithTimeout(t.Context(), time.Millisecond)
	defer end()
	expired := r.Ask(deadline, r.Item, 20)
	cancel()
	for request, cause := range map[<-chan stocktest.Answer]error{
		cancelled: context.Canceled, expired: context.DeadlineExceeded,
	} {
		if a := <-request; !errors.Is(a.Err, stock.ErrBusy) || !errors.Is(a.Err, cause) {
			t.Errorf("%v, want busy joined with %v before the batch is sent", a.Err, cause)
		}
	}
	release()
	stocktest.WantAnswers(t, stocktest.Answers(others...), "97 remain")
}

func TestTheNextRequestLeadsIfTheLeaderIsCancelledBeforeItsBatchIsSent(t *testing.T) {
	t.Parallel()
	r := newBatchReplica(t, "batch", 100)
	var taken []*sqlx.Conn
	for range r.Deps.MySQL.Stats().MaxOpenConnections {
		conn, err := r.Deps.MySQL.Connx(t.Context())
		must.Succeed(t, err)
		taken = append(taken, conn)
	}
	ctx, cancel := context.WithCancel(t.Context())
	leader := r.Ask(ctx, r.Item, 50)
	serverstest.Eventually(t, "the leader waits for a connection", func() bool {
		return r.Deps.MySQL.Stats().WaitCount == 1
	})
	other := r.Ask(t.Context(), r.Item, 1)
	serverstest.Eventually(t, "the other request waits for the leader", func() bool { return r.Waiting() == 1 })
	cancel()
	stocktest.WantAnswers(t, stocktest.Answers(leader), "busy")
	for _, conn := range taken {
		conn.Close()
	}
	stocktest.WantAnswers(t, stocktest.Answers(other), "99 remain")
}

func TestARequestThatIsCancelledAfterItsBatchIsSentGetsItsReceipt(t *testing.T) {
	t.Parallel()
	r := newBatchReplica(t, "batch", 100)
	before := r.Proxy.Count()
	release := r.Proxy.Hold()
	ctx, cancel := context.WithCancel(t.Context())
	first := r.Ask(ctx, r.Item, 1)
	serverstest.Eventually(t, "the first request is sent", func() bool { return r.Proxy.Count() == before+1 })
	others := []<-chan stocktest.Answer{r.Ask(ctx, r.Item, 2), r.Ask(ctx, r.Item, 2)}
	serverstest.Eventually(t, "the others wait", func() bool { return r.Waiting() == 2 })
	r.Proxy.Select(stocktest.Matching(deduct))
	releaseOthers := r.Proxy.Hold()
	release()
	stocktest.WantAnswers(t, stocktest.Answers(first), "99 remain")
	serverstest.Eventually(t, "the others are sent", func() bool { return r.Proxy.Count() == before+2 })
	cancel()
	releaseOthers()
	answers := stocktest.Answers(others...)
	slices.Sort(answers)
	stocktest.WantAnswers(t, answers, "95 remain", "97 remain")
	r.WantLeft(t, 95)
}

func TestARequestIsBusyIfItsLineIsFull(t *testing.T) {
	t.Parallel()
	r := newBatchReplica(t, "batch", 10_000)
	before := r.Proxy.Count()
	first, _, release := r.Gather(t)
	var others []<-chan stocktest.Answer
	for range batching.MaxWaiting {
		others = append(others, r.Ask(t.Context(), r.Item, 1))
	}
	serverstest.Eventually(t, "the line is full", func() bool { return r.Waiting() == batching.MaxWaiting })
	stocktest.WantAnswers(t, stocktest.Answers(r.Ask(t.Context(), r.Item, 1)), "busy")
	release()
	for _, request := range append(others, first) {
		if a := <-request; a.Err != nil {
			t.Fatal(a.Err)
		}
	}
	if sent := r.Proxy.Count() - before; sent != 1+4 {
		t.Errorf("%d round trips, want 5: one for the first request and one for each of the four batches after it", sent)
	}
	r.WantLeft(t, 10_000-batching.MaxWaiting-1)
}

// A request with work to do gets a transaction of its own.
func TestARequestWithWorkToDoDelaysNoBatch(t *testing.T) {
	t.Parallel()
	r := newBatchReplica(t, "batch", 10)
	sale := stock.Request{GoodsID: r.Item, Count: 1}
	worker := stocktest.Park(t, r.Deducter, stocktest.WithWork(sale), stocktest.BeforeWrite)
	stocktest.WantAnswers(t, stocktest.Answers(r.Ask(t.Context(), r.Item, 2)), "8 remain")
	must.Succeed(t, worker.Resume())
	r.WantLeft(t, 7)
}
