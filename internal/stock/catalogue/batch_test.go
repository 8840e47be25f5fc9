package catalogue_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jmoiron/sqlx"

	"stock/internal/servers/serverstest"
	"stock/internal/stock"
	"stock/internal/stock/batching"
	"stock/internal/stock/stocktest"
)

// crowd is requests for one goods, on a replica whose statements a proxy sees and can stop.
type crowd struct {
	stock.Deducter
	deps    stock.Deps
	service *stocktest.Service
	proxy   *proxy
	on      stock.Store
	goods   int64
}

// Everything that a client sends but the greeting is a statement of a round trip.
var everyStatement = regexp.MustCompile(`(?s)^.{4}\x03`)

func newCrowd(t testing.TB, name string, units int64) crowd {
	a := stocktest.Addresses{MySQL: stocktest.NewDatabase(t)}
	config, err := mysql.ParseDSN(a.MySQL)
	if err != nil {
		t.Fatal(err)
	}
	p := newProxy(t, config.Addr, everyStatement)
	config.Addr = p.addr()
	deps := stock.Deps{MySQL: stocktest.MySQL(t, config.FormatDSN()), LockWait: 20 * time.Second}
	deps.MySQLLocks = deps.MySQL
	c := crowd{deps: deps, service: stocktest.NewService(t, deps), proxy: p, on: stock.MySQL}
	c.Deducter = c.service.Deducter(t, name, stock.MySQL)
	c.goods = c.restock(t, units)
	return c
}

// restock makes a goods. What it sends is not counted.
func (c *crowd) restock(t testing.TB, units int64) int64 {
	t.Helper()
	id := stocktest.NewItem()
	if err := c.service.SetStock(t.Context(), id, units); err != nil {
		t.Fatal(err)
	}
	return id
}

// waiting counts the requests that wait for the batch under way.
func (c *crowd) waiting() int { return c.Deducter.(interface{ Waiting(int64) int }).Waiting(c.goods) }

// lines counts the items with a batch under way.
func (c *crowd) lines() int { return c.Deducter.(interface{ Lines() int }).Lines() }

func (c *crowd) wantLeft(t testing.TB, want int64) {
	t.Helper()
	left, err := c.service.Stock(context.WithoutCancel(t.Context()), c.on, c.goods)
	if err != nil || left != want {
		t.Errorf("%d units are left, %v, want %d", left, err, want)
	}
}

type answered struct {
	receipt stock.Receipt
	err     error
}

func (c *crowd) ask(ctx context.Context, goods int64, count int) <-chan answered {
	return c.send(ctx, stock.Request{GoodsID: goods, Count: count})
}

func (c *crowd) send(ctx context.Context, req stock.Request) <-chan answered {
	done := make(chan answered, 1)
	go func() {
		receipt, err := c.Deduct(ctx, req)
		done <- answered{receipt, err}
	}()
	return done
}

// gather stops a request for one unit on its way to the server, and lines up others behind it in this order.
func (c *crowd) gather(t testing.TB, counts ...int) (first <-chan answered, others []<-chan answered, release func()) {
	t.Helper()
	var requests []stock.Request
	for _, count := range counts {
		requests = append(requests, stock.Request{Count: count})
	}
	return c.gatherOrders(t, requests...)
}

func (c *crowd) gatherOrders(t testing.TB, requests ...stock.Request) (first <-chan answered, others []<-chan answered, release func()) {
	t.Helper()
	before := c.proxy.writes()
	release = c.proxy.hold()
	t.Cleanup(release)
	first = c.ask(t.Context(), c.goods, 1)
	serverstest.Eventually(t, "the first request is sent", func() bool { return c.proxy.writes() > before })
	for i, request := range requests {
		request.GoodsID = c.goods
		others = append(others, c.send(t.Context(), request))
		serverstest.Eventually(t, "the next request waits", func() bool { return c.waiting() == i+1 })
	}
	return first, others, release
}

// outcomes are what the requests were told, in words.
func outcomes(requests ...<-chan answered) (told []string) {
	for _, request := range requests {
		a := <-request
		var soldOut *stock.SoldOutError
		again := ""
		if a.receipt.Replayed {
			again = " again"
		}
		switch {
		case a.err == nil:
			told = append(told, fmt.Sprintf("%d remain%s", a.receipt.Remaining, again))
		case errors.As(a.err, &soldOut):
			told = append(told, fmt.Sprintf("sold out at %d%s", soldOut.Remaining, again))
		case errors.Is(a.err, stock.ErrUnknown):
			told = append(told, "unknown")
		case errors.Is(a.err, stock.ErrBusy):
			told = append(told, "busy")
		case errors.Is(a.err, stock.ErrUnavailable):
			told = append(told, "unavailable")
		case errors.Is(a.err, stock.ErrKeyReused):
			told = append(told, "key of another order")
		case errors.Is(a.err, stock.ErrInProgress):
			told = append(told, "in progress")
		default:
			told = append(told, a.err.Error())
		}
	}
	return told
}

func want(t testing.TB, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("told %q, want %q", got, want)
	}
}

func TestABatchOfOneIsOneRoundTrip(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, "batch", 10)
	before := c.proxy.writes()
	want(t, outcomes(c.ask(t.Context(), c.goods, 3)), "7 remain")
	if sent := c.proxy.writes() - before; sent != 1 {
		t.Errorf("%d round trips, want 1", sent)
	}
}

func TestRequestsThatWaitShareTheNextTransaction(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, "batch", 100)
	before := c.proxy.writes()
	first, others, release := c.gather(t, 2, 5, 1, 30)
	release()
	want(t, outcomes(append([]<-chan answered{first}, others...)...), "99 remain", "97 remain", "92 remain", "91 remain", "61 remain")
	if sent := c.proxy.writes() - before; sent != 2 {
		t.Errorf("%d round trips for 5 requests, want 1 for the first, and 1 for the others", sent)
	}
	c.wantLeft(t, 61)
}

func TestABatchGrantsInTheOrderOfArrivalWhateverFits(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, "batch", 11)
	_, others, release := c.gather(t, 4, 7, 5, 2, 1, 1)
	release()
	want(t, outcomes(others...), "6 remain", "sold out at 6", "1 remain", "sold out at 1", "0 remain", "sold out at 0")
	c.wantLeft(t, 0)
}

func TestABatchOfWhichNothingFitsWritesNothing(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, "batch", 3)
	before := c.proxy.writes()
	_, others, release := c.gather(t, 5, 3, 4)
	release()
	want(t, outcomes(others...), "sold out at 2", "sold out at 2", "sold out at 2")
	if sent := c.proxy.writes() - before; sent != 3 {
		t.Errorf("%d round trips, want 1 for the first, and 2 for the others: an UPDATE that finds too little, and a look at what there is", sent)
	}
}

func TestABatchForAGoodsThatIsUnknownIsRefused(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, "batch", 3)
	c.goods = stocktest.NewItem()
	first, others, release := c.gather(t, 1, 2)
	release()
	for _, request := range append(others, first) {
		if a := <-request; !errors.Is(a.err, stock.ErrUnknownItem) {
			t.Errorf("%v, want unknown goods", a.err)
		}
	}
}

// Cut before the reply the batch was carried out, cut before it was sent it was not: nobody here can know.
func TestNobodyInABatchWhoseCommitIsLostIsToldMoreThanUnknown(t *testing.T) {
	t.Parallel()
	for cut, left := range map[cut]int64{beforeReply: 1, beforeSent: 3} {
		c := newCrowd(t, "batch", 4)
		first, others, release := c.gather(t, 2, 4)
		c.proxy.look(regexp.MustCompile(`COMMIT$`))
		c.proxy.arm(cut)
		release()
		want(t, outcomes(first), "3 remain")
		want(t, outcomes(others...), "unknown", "unknown")
		c.wantLeft(t, left)
	}
}

// The batch locks the index before the row, another transaction the row before the index: the server undoes the one
// that has written less.
func TestABatchThatTheServerHasUndoneIsTriedAgain(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, "batch", 100)
	other, err := c.deps.MySQL.BeginTxx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Rollback()
	for range 20 {
		if _, err := other.Exec("INSERT INTO good_stock (goods_id, stock) VALUES (?, 1)", stocktest.NewItem()); err != nil {
			t.Fatal(err)
		}
	}
	var row int64
	if err := c.deps.MySQL.Get(&row, "SELECT id FROM good_stock WHERE goods_id = ?", c.goods); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Exec("SELECT stock FROM good_stock WHERE id = ? FOR UPDATE", row); err != nil {
		t.Fatal(err)
	}
	request := c.ask(t.Context(), c.goods, 1)
	waitForRowLock(t, c.deps)
	if _, err := other.Exec("SELECT stock FROM good_stock WHERE goods_id = ? FOR UPDATE", c.goods); err != nil {
		t.Fatalf("%v: the batch should have been undone, not this", err)
	}
	if err := other.Rollback(); err != nil {
		t.Fatal(err)
	}
	if a := <-request; a.err != nil || a.receipt.Remaining != 99 || a.receipt.Attempts < 2 {
		t.Errorf("%+v, %v, want 99 remaining after 2 attempts or more", a.receipt, a.err)
	}
}

func TestARequestThatIsCancelledBeforeItsBatchIsSentIsNotDeducted(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, "batch", 100)
	_, others, release := c.gather(t, 2)
	ctx, cancel := context.WithCancel(t.Context())
	leaves := c.ask(ctx, c.goods, 50)
	serverstest.Eventually(t, "it waits", func() bool { return c.waiting() == 2 })
	late, end := context.WithTimeout(t.Context(), time.Millisecond)
	defer end()
	expires := c.ask(late, c.goods, 20)
	cancel()
	for request, cause := range map[<-chan answered]error{leaves: context.Canceled, expires: context.DeadlineExceeded} {
		if a := <-request; !errors.Is(a.err, stock.ErrBusy) || !errors.Is(a.err, cause) {
			t.Errorf("%v, want busy joined with %v, before anything is sent", a.err, cause)
		}
	}
	release()
	want(t, outcomes(others...), "97 remain")
}

// A leader that leaves the line leaves nobody behind.
func TestALeaderThatIsCancelledBeforeItsBatchIsSentHandsOn(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, "batch", 100)
	var taken []*sqlx.Conn
	for range c.deps.MySQL.Stats().MaxOpenConnections {
		conn, err := c.deps.MySQL.Connx(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		taken = append(taken, conn)
	}
	ctx, cancel := context.WithCancel(t.Context())
	leader := c.ask(ctx, c.goods, 50)
	serverstest.Eventually(t, "it waits for a connection", func() bool { return c.deps.MySQL.Stats().WaitCount == 1 })
	other := c.ask(t.Context(), c.goods, 1)
	serverstest.Eventually(t, "another waits for it", func() bool { return c.waiting() == 1 })
	cancel()
	want(t, outcomes(leader), "busy")
	for _, conn := range taken {
		conn.Close()
	}
	want(t, outcomes(other), "99 remain")
}

func TestARequestThatIsCancelledAfterItsBatchIsSentIsToldWhatBecameOfIt(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, "batch", 100)
	before := c.proxy.writes()
	release := c.proxy.hold()
	ctx, cancel := context.WithCancel(t.Context())
	first := c.ask(ctx, c.goods, 1)
	serverstest.Eventually(t, "the first request is sent", func() bool { return c.proxy.writes() == before+1 })
	others := []<-chan answered{c.ask(ctx, c.goods, 2), c.ask(ctx, c.goods, 2)}
	serverstest.Eventually(t, "the others wait", func() bool { return c.waiting() == 2 })
	c.proxy.look(regexp.MustCompile(`UPDATE good_stock`))
	next := c.proxy.hold()
	release()
	want(t, outcomes(first), "99 remain")
	serverstest.Eventually(t, "the others are sent", func() bool { return c.proxy.writes() == before+2 })
	cancel()
	next()
	told := outcomes(others...)
	slices.Sort(told)
	want(t, told, "95 remain", "97 remain")
	c.wantLeft(t, 95)
}

func TestSeveralGoodsAreSoldSideBySide(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, "batch", 10)
	row, err := c.deps.MySQL.BeginTxx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer row.Rollback()
	if _, err := row.Exec("SELECT stock FROM good_stock WHERE goods_id = ? FOR UPDATE", c.goods); err != nil {
		t.Fatal(err)
	}
	blocked := c.ask(t.Context(), c.goods, 1)
	want(t, outcomes(c.ask(t.Context(), c.restock(t, 5), 2)), "3 remain")
	if err := row.Rollback(); err != nil {
		t.Fatal(err)
	}
	want(t, outcomes(blocked), "9 remain")
	serverstest.Eventually(t, "no line is left", func() bool { return c.lines() == 0 })
}

func TestAFullLineIsBusy(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, "batch", 10_000)
	before := c.proxy.writes()
	first, _, release := c.gather(t)
	var others []<-chan answered
	for range batching.MaxWaiting {
		others = append(others, c.ask(t.Context(), c.goods, 1))
	}
	serverstest.Eventually(t, "the line is full", func() bool { return c.waiting() == batching.MaxWaiting })
	wantBusyOn(t, c.ask(t.Context(), c.goods, 1))
	release()
	for _, request := range append(others, first) {
		if a := <-request; a.err != nil {
			t.Fatal(a.err)
		}
	}
	if sent := c.proxy.writes() - before; sent != 1+4 {
		t.Errorf("%d round trips, want 1 for the first, and 1 for each of the four batches behind it", sent)
	}
	c.wantLeft(t, 10_000-batching.MaxWaiting-1)
}

func wantBusyOn(t testing.TB, request <-chan answered) {
	t.Helper()
	if a := <-request; !errors.Is(a.err, stock.ErrBusy) {
		t.Errorf("%v, want busy", a.err)
	}
}

// Work inside the critical section is nobody else's: whoever has none passes by.
func TestARequestWithWorkToDoHoldsUpNoBatchOfItsReplica(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, "batch", 10)
	p := park(t, c.Deducter, stock.Request{GoodsID: c.goods, Count: 1}, stock.BeforeWrite)
	want(t, outcomes(c.ask(t.Context(), c.goods, 2)), "8 remain")
	if err := p.goOn(); err != nil {
		t.Error(err)
	}
	c.wantLeft(t, 7)
}

// Two replicas, more demand than stock, unequal counts and some that give up: what was granted and what is left are
// all.
func TestBatchesOfTwoReplicasConserveEveryUnit(t *testing.T) {
	t.Parallel()
	const buyers, initial = 64, 1500
	a := stocktest.Addresses{MySQL: stocktest.NewDatabase(t)}
	var replicas [2]stock.Deducter
	var service *stocktest.Service
	for i := range replicas {
		deps := stock.Deps{MySQL: stocktest.MySQL(t, a.MySQL), LockWait: 20 * time.Second}
		deps.MySQLLocks = deps.MySQL
		service = stocktest.NewService(t, deps)
		replicas[i] = service.Deducter(t, "batch", stock.MySQL)
	}
	id := stocktest.NewItem()
	if err := service.SetStock(t.Context(), id, initial); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	granted, left := int64(0), map[int64]bool{}
	var wg sync.WaitGroup
	for buyer := range buyers {
		wg.Go(func() {
			for i := range 20 {
				ctx, cancel := context.WithCancel(t.Context())
				if (buyer+i)%5 == 0 {
					go cancel()
				}
				count := 1 + (buyer+i)%3
				receipt, err := replicas[buyer%2].Deduct(ctx, stock.Request{GoodsID: id, Count: count})
				cancel()
				mu.Lock()
				switch {
				case err == nil:
					if left[receipt.Remaining] {
						t.Errorf("two receipts say that %d remain", receipt.Remaining)
					}
					left[receipt.Remaining] = true
					granted += int64(count)
				case !errors.Is(err, stock.ErrSoldOut) && !errors.Is(err, context.Canceled):
					t.Error(err)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if final, err := service.Stock(t.Context(), stock.MySQL, id); err != nil || final != initial-granted {
		t.Errorf("%d units are left, %v: %d of %d were granted", final, err, granted, initial)
	}
}
