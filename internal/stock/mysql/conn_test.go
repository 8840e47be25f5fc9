package mysql_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"stock/internal/must"
	"stock/internal/servers/serverstest"
	"stock/internal/stock"
	"stock/internal/stock/catalogue"
	"stock/internal/stock/mysql"
	"stock/internal/stock/share"
	"stock/internal/stock/stocktest"
	"stock/internal/tcpproxy"
)

// onMySQL runs a test for every strategy that needs nothing but MySQL, on a database of its own.
func onMySQL(t *testing.T, test func(t *testing.T, strategy stock.Strategy)) {
	t.Parallel()
	for _, strategy := range catalogue.Strategies {
		if on := strategy.Stores[0]; !slices.Equal(strategy.NeedsOn(on), []stock.Need{stock.NeedMySQL}) {
			continue
		}
		t.Run(strategy.Name, func(t *testing.T) {
			t.Parallel()
			test(t, strategy)
		})
	}
}

// crowd sends requests that cannot be answered yet, twice as many as there are connections, and waits until all wait
// for something. They end with the test.
func crowd(t *testing.T, deps stock.Deps, send func(ctx context.Context, n int)) {
	t.Helper()
	before := deps.MySQL.Stats()
	requests := 2 * before.MaxOpenConnections
	ctx, cancel := context.WithCancel(t.Context())
	var users sync.WaitGroup
	t.Cleanup(func() { cancel(); users.Wait() })
	for n := range requests {
		users.Go(func() { send(ctx, n) })
	}
	serverstest.Eventually(t, "every request has a connection or waits for one", func() bool {
		pool := deps.MySQL.Stats()
		return pool.InUse+int(pool.WaitCount-before.WaitCount)+deps.MySQLShares.Waiting() >= requests
	})
}

// wantSold sells one unit.
func wantSold(t *testing.T, d stock.Deducter, goodsID int64) {
	t.Helper()
	if _, err := d.Deduct(t.Context(), stock.Request{GoodsID: goodsID, Count: 1}); err != nil {
		t.Errorf("Deduct: %v", err)
	}
}

func TestOneBlockedItemLeavesConnectionsForOthers(t *testing.T) {
	onMySQL(t, func(t *testing.T, strategy stock.Strategy) {
		oneAtATime := strategy.Lock != nil || strategy.Name == "mutex-around-tx"
		if oneAtATime || slices.Contains([]string{"batch", "escrow", "reserve"}, strategy.Name) {
			t.Skip("its buyers of one item wait for each other without a connection: at most one has one")
		}
		a := stocktest.NewAddresses(t, stock.NeedMySQL)
		outside, deps := stocktest.MySQL(t, a.MySQL), a.Connect(t)
		service := stocktest.NewService(t, deps)
		blocked, other := service.NewItem(t, 100), service.NewItem(t, 100)
		deducter := service.Deducter(t, strategy.Name, "")
		unlock := stocktest.LockRow(t, outside, blocked)
		buy := func(ctx context.Context, _ int) {
			_, _ = deducter.Deduct(ctx, stock.Request{GoodsID: blocked, Count: 1})
		}
		crowd(t, deps, buy)
		waiting := deps.MySQL.Stats().MaxOpenConnections / 2
		if strategy.Name == "mutex-in-tx" { // the others wait inside their transactions for its mutex
			waiting = 1
		}
		stocktest.WaitForRowLocks(t, outside, waiting)
		wantSold(t, deducter, other)
		if _, err := service.Stock(t.Context(), "", blocked); err != nil {
			t.Errorf("read the stock of the blocked item: %v", err)
		}
		unlock()
		stocktest.WantIdle(t, deps)
	})
}

func TestHeldWorkLeavesConnectionsForOthers(t *testing.T) {
	t.Parallel()
	deps, service := newReplica(t)
	items := make([]int64, 2*deps.MySQL.Stats().MaxOpenConnections)
	for i := range items {
		items[i] = service.NewItem(t, 10)
	}
	other := service.NewItem(t, 10)
	update := service.Deducter(t, "update", stock.MySQL)
	crowd(t, deps, func(ctx context.Context, n int) {
		untilTheEnd := stocktest.Once(stocktest.AfterWrite, func(context.Context) { <-ctx.Done() })
		_, _ = update.Deduct(stocktest.WithPause(ctx, untilTheEnd),
			stock.Request{GoodsID: items[n], Count: 1, Hold: stock.MaxHold})
	})
	wantSold(t, update, other)
}

// A request that waits for its item's share is refused after Deps.LockWait, or at once, and says why.
func TestARequestDoesNotWaitLongerForItsShareThanItMay(t *testing.T) {
	t.Parallel()
	deps := stocktest.NewAddresses(t, stock.NeedMySQL).Connect(t)
	deps.LockWait = 10 * time.Millisecond
	service := stocktest.NewService(t, deps)
	id := service.NewItem(t, 10)
	for deps.MySQLShares.TryAcquire(id) {
		continue
	}
	for _, ctx := range []context.Context{t.Context(), stock.LimitWait(t.Context(), 0)} {
		_, err := service.Deducter(t, "update", stock.MySQL).Deduct(ctx, stock.Request{GoodsID: id, Count: 1})
		if !errors.Is(err, stock.ErrBusy) || !strings.Contains(err.Error(), "its share") {
			t.Errorf("Deduct: %v, want busy", err)
		}
	}
	if n := deps.MySQLShares.Waiting(); n != 0 {
		t.Errorf("%d requests still wait", n)
	}
}

// rowWait is the session's innodb_lock_wait_timeout in these tests, in seconds.
const rowWait = "120"

// impatient makes a replica with a single connection, whose server waits longer for a row than requests have time.
func impatient(t *testing.T, a stocktest.Addresses) stock.Deps {
	deps := a.WithMySQLParam(t, "innodb_lock_wait_timeout", rowWait).Connect(t)
	deps.MySQL.SetMaxOpenConns(1)
	deps.MySQLShares = share.New(1)
	return deps
}

// session identifies the connection of the pool, and says how long its server waits for rows.
func session(t *testing.T, deps stock.Deps) (s struct {
	ID   int64
	Wait string
}) {
	t.Helper()
	must.Succeed(t, deps.MySQL.Get(&s, "SELECT CONNECTION_ID() AS id, @@innodb_lock_wait_timeout AS wait"))
	return s
}

var setRowWait = regexp.MustCompile(`SET innodb_lock_wait_timeout = (\d+)$`)

// The request has 100 of the 120 seconds for which the server would wait. The number is a literal: MySQL, unlike
// MariaDB, does not accept an expression with the variable.
func TestTheServerWaitsForARowNoLongerThanTheRequest(t *testing.T) {
	onMySQL(t, func(t *testing.T, strategy stock.Strategy) {
		a := stocktest.NewAddresses(t, stock.NeedMySQL)
		outside := stocktest.MySQL(t, a.MySQL)
		var proxy *tcpproxy.Proxy
		proxy, a.MySQL = stocktest.ProxyMySQL(t, a.MySQL)
		deps := impatient(t, a)
		service := stocktest.NewService(t, deps)
		id := service.NewItem(t, 10)
		before := session(t, deps)
		waits := make(chan int, 100)
		proxy.Select(func(m tcpproxy.Message) bool {
			// New connections are told rowWait.
			if found := setRowWait.FindSubmatch(m.Data); found != nil && string(found[1]) != rowWait {
				seconds, _ := strconv.Atoi(string(found[1]))
				waits <- seconds
			}
			return false
		})
		unlock := stocktest.LockRow(t, outside, id)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
		defer cancel()
		sold := stocktest.Start(ctx, service.Deducter(t, strategy.Name, ""), stock.Request{GoodsID: id, Count: 1})
		stocktest.WaitForRowLock(t, outside)
		select {
		case got := <-waits:
			if got < 1 || got > 99 {
				t.Errorf("the server waits for %d s, want at most 99 s", got)
			}
		default:
			t.Error("the server waits as long as usual")
		}
		unlock()
		must.Succeed(t, (<-sold).Err)
		if after := session(t, deps); after != before || after.Wait != rowWait {
			t.Errorf("the connection was %v and is %v", before, after)
		}
	})
}

// The second statement finds the connection broken. It must not wait for its own transaction to end.
func TestATransactionEndsIfItsConnectionIsKilled(t *testing.T) {
	t.Parallel()
	a := stocktest.NewAddresses(t, stock.NeedMySQL)
	deps := impatient(t, a)
	id := stocktest.NewService(t, deps).NewItem(t, 10)
	before := session(t, deps)
	outside := stocktest.MySQL(t, a.MySQL)
	done := make(chan error, 1)
	go func() {
		done <- mysql.New(deps).InTx(t.Context(), []int64{id}, nil, func(tx mysql.Tx) error {
			if _, err := outside.Exec(fmt.Sprintf("KILL %d", before.ID)); err != nil {
				return err
			}
			ctx := stock.LimitWait(t.Context(), time.Second) // the server must be told
			_, first := tx.Read(ctx, id)
			_, second := tx.Read(ctx, id)
			if first == nil {
				return errors.New("the connection was not killed")
			}
			return second
		})
	}()
	select {
	case err := <-done:
		if !errors.Is(err, stock.ErrUnavailable) {
			t.Errorf("got %v, want unavailable", err)
		}
	case <-time.After(5 * time.Minute):
		t.Error("the transaction still waits 5 minutes after its connection was killed")
	}
}

func TestARequestWithLittleTimeLeftSendsNothing(t *testing.T) {
	onMySQL(t, func(t *testing.T, strategy stock.Strategy) {
		deps, service := newReplica(t)
		id := service.NewItem(t, 10)
		ctx, cancel := context.WithTimeout(t.Context(), 1900*time.Millisecond)
		defer cancel()
		_, err := service.Deducter(t, strategy.Name, "").Deduct(ctx, stock.Request{GoodsID: id, Count: 1})
		if !errors.Is(err, stock.ErrBusy) {
			t.Errorf("Deduct: %v, want busy", err)
		}
		service.WantLeft(t, strategy.Stores[0], id, 10)
		stocktest.WantIdle(t, deps)
	})
}
