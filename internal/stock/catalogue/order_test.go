package catalogue_test

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jmoiron/sqlx"
	"github.com/redis/go-redis/v9"

	"stock/internal/stock"
	"stock/internal/stock/stocktest"
)

func TestAnOrderMergesTheLinesOfAGoodsAndSortsThem(t *testing.T) {
	t.Parallel()
	given := []stock.Line{{GoodsID: 9, Count: 1}, {GoodsID: 10, Count: 5}, {GoodsID: 9, Count: 2}, {GoodsID: 3, Count: 4}}
	before := slices.Clone(given)
	req, err := stock.NewOrder(given...)
	if want := []stock.Line{{GoodsID: 3, Count: 4}, {GoodsID: 9, Count: 3}, {GoodsID: 10, Count: 5}}; err != nil || !slices.Equal(req.Lines(), want) {
		t.Errorf("got %v, %v, want %v", req.Lines(), err, want)
	}
	if !slices.Equal(given, before) {
		t.Errorf("the caller's lines became %v", given)
	}
}

func TestAnOrderHasLimits(t *testing.T) {
	t.Parallel()
	hundred := slices.Repeat([]stock.Line{{GoodsID: 1, Count: 1}}, stock.MaxLines)
	if req, err := stock.NewOrder(hundred...); err != nil || len(req.Lines()) != 1 {
		t.Errorf("100 lines: %v, %v", req.Lines(), err)
	}
	for want, lines := range map[string][]stock.Line{
		"has 0 lines":                     nil,
		"has 101 lines":                   append(hundred, stock.Line{GoodsID: 1, Count: 1}),
		"1000001 units of item 7 in all": {{GoodsID: 7, Count: stock.MaxCount}, {GoodsID: 7, Count: 1}},
	} {
		if _, err := stock.NewOrder(lines...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want that it %s", err, want)
		}
	}
}

func TestTheseStrategiesTakeOrders(t *testing.T) {
	t.Parallel()
	service := stocktest.NewService(t, stocktest.NewAddresses(t).Connect(t))
	for _, status := range service.Statuses() {
		var want []stock.Store
		if strings.HasPrefix(status.Name, "lock-") || slices.Contains([]string{"update", "for-update", "ledger", "batch", "batch-ledger"}, status.Name) {
			want = status.Stores
		}
		if !slices.Equal(status.Orders, want) {
			t.Errorf("%s takes orders on %v, want %v", status.Name, status.Orders, want)
		}
		for _, on := range status.Stores {
			if _, _, err := service.ResolveOrders(status.Name, on); (err == nil) != slices.Contains(want, on) || err != nil && !errors.Is(err, stock.ErrNoOrders) {
				t.Errorf("%s on %s: %v", status.Name, on, err)
			}
		}
	}
}

// Goods of different slots cannot be written at once: an order would be torn by a crash.
func TestARedisClusterTakesNoOrders(t *testing.T) {
	t.Parallel()
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	t.Cleanup(func() { cluster.Close() })
	service := stocktest.NewService(t, stock.Deps{Redis: cluster})
	if _, _, err := service.ResolveOrders("lock-redis-lua", stock.Redis); !errors.Is(err, stock.ErrNoOrders) {
		t.Errorf("got %v, want that it takes no orders", err)
	}
}

// An order that needs more connections than there are would wait for itself. One is left to who waits for a lock.
func TestAnOrderNeedsAConnectionForEachOfItsNamedLocks(t *testing.T) {
	t.Parallel()
	o := newOrders(t, stocktest.NewAddresses(t), 10, 10, 10)
	o.deps.MySQLLocks.SetMaxOpenConns(3)
	o.service = stocktest.NewService(t, o.deps)
	if _, err := o.place("lock-mysql-getlock", stock.MySQL, nil, 1, 1, 1); !errors.Is(err, stock.ErrNoOrders) {
		t.Errorf("3 goods: %v, want that it takes no such orders", err)
	}
	if _, err := o.place("lock-mysql-getlock", stock.MySQL, nil, 1, 1); err != nil {
		t.Errorf("2 goods: %v", err)
	}
}

// Together they need three times the connections that there are. If each took some of them, all would wait out the
// lock wait.
func TestOrdersTakeTurnsToCollectTheConnectionsOfTheirNamedLocks(t *testing.T) {
	t.Parallel()
	o := newOrders(t, stocktest.NewAddresses(t))
	o.deps.MySQLLocks.SetMaxOpenConns(4)
	o.service = stocktest.NewService(t, o.deps)
	began := time.Now()
	var wg sync.WaitGroup
	for _, name := range []string{"lock-mysql-getlock", "lock-multi"} {
		for _, on := range []stock.Store{stock.MySQL, stock.Redis} {
			one := *o
			one.stock(10, 10, 10)
			wg.Go(func() {
				for range 3 {
					if _, err := one.place(name, on, nil, 1, 1, 1); err != nil {
						t.Errorf("%s on %s: %v", name, on, err)
					}
				}
				one.wantLeft(on, 7, 7, 7)
			})
		}
	}
	wg.Wait()
	if took, wait := time.Since(began), o.deps.LockWait; took > wait/2 {
		t.Errorf("it took %v, of a lock wait of %v", took, wait)
	}
}

// orders are of some fresh goods.
type orders struct {
	t       testing.TB
	deps    stock.Deps
	service *stocktest.Service
	ids     []int64
}

func newOrders(t testing.TB, a stocktest.Addresses, units ...int64) *orders {
	deps := a.Connect(t)
	o := &orders{t, deps, stocktest.NewService(t, deps), nil}
	o.stock(units...)
	return o
}

// stock makes new goods, in ascending order, with these units.
func (o *orders) stock(units ...int64) {
	o.t.Helper()
	o.ids = nil
	for _, n := range units {
		id := stocktest.NewItem()
		if err := o.service.SetStock(o.t.Context(), id, n); err != nil {
			o.t.Fatal(err)
		}
		o.ids = append(o.ids, id)
	}
}

// place orders these counts of the goods, the last goods first.
func (o *orders) place(strategy string, on stock.Store, pause stock.PauseFunc, counts ...int) (stock.OrderReceipt, error) {
	req := o.request("", counts...)
	req.Pause = pause
	return o.send(strategy, on, req)
}

func (o *orders) request(key string, counts ...int) stock.OrderRequest {
	o.t.Helper()
	var lines []stock.Line
	for i, count := range counts {
		lines = append(lines, stock.Line{GoodsID: o.ids[i], Count: count})
	}
	slices.Reverse(lines)
	req, err := stock.NewOrder(lines...)
	if err != nil {
		o.t.Error(err)
	}
	req.Key = key
	return req
}

func (o *orders) send(strategy string, on stock.Store, req stock.OrderRequest) (stock.OrderReceipt, error) {
	orderer, _, err := o.service.ResolveOrders(strategy, on)
	if err != nil {
		return stock.OrderReceipt{}, err
	}
	return orderer.Order(o.t.Context(), req)
}

func (o *orders) wantLeft(on stock.Store, want ...int64) {
	o.t.Helper()
	for i, id := range o.ids {
		if left, err := o.service.Stock(context.WithoutCancel(o.t.Context()), on, id); err != nil || left != want[i] {
			o.t.Errorf("%d units of goods %d are left, %v, want %d", left, i, err, want[i])
		}
	}
}

func (o *orders) begin() *sqlx.Tx {
	o.t.Helper()
	tx, err := o.deps.MySQL.BeginTxx(o.t.Context(), nil)
	if err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(func() { _ = tx.Rollback() }) // where it has not ended yet
	return tx
}

const takeOne = "UPDATE good_stock SET stock = stock - 1 WHERE goods_id = ?"

// Two transactions that lock two goods in opposite order wait for each other: what orders would do if they took the
// goods as they come.
func TestUnorderedTransactionsDeadlock(t *testing.T) {
	t.Parallel()
	o := newOrders(t, stocktest.NewAddresses(t), 10, 10)
	first, second := o.begin(), o.begin()
	_, err := first.Exec(takeOne, o.ids[0])
	_, err2 := second.Exec(takeOne, o.ids[1])
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := first.Exec(takeOne, o.ids[1])
		done <- err
	}()
	_, err = second.Exec(takeOne, o.ids[0])
	if err == nil {
		err = <-done // the server's choice was the first one
	}
	if server, ok := errors.AsType[*mysql.MySQLError](err); !ok || server.Number != 1213 {
		t.Errorf("got %v, want a deadlock, error 1213", err)
	}
}

// The same in the service: the second order waits for the goods that the first has locked, and holds none meanwhile.
func TestOppositeOrdersDoNotDeadlock(t *testing.T) {
	t.Parallel()
	a := stocktest.NewAddresses(t)
	for _, name := range []string{"update", "for-update", "ledger"} {
		o := newOrders(t, a, 10, 10)
		locked, goOn := make(chan struct{}), make(chan struct{})
		once := true
		behindTheFirst := func(_ context.Context, at stock.Point) error {
			if at == stock.AfterLock && once {
				once = false
				close(locked)
				<-goOn
			}
			return nil
		}
		first, second := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := o.place(name, stock.MySQL, behindTheFirst, 1, 2)
			first <- err
		}()
		<-locked
		go func() {
			_, err := o.place(name, stock.MySQL, nil, 3, 4)
			second <- err
		}()
		waitForRowLock(t, o.deps)
		probe := o.begin()
		if _, err := probe.Exec("SELECT stock FROM good_stock WHERE goods_id = ? FOR UPDATE NOWAIT", o.ids[1]); err != nil {
			t.Errorf("%s: an order that waits for its first goods has locked its last: %v", name, err)
		}
		if err := probe.Rollback(); err != nil {
			t.Fatal(err)
		}
		close(goOn)
		if err := errors.Join(<-first, <-second); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		o.wantLeft(stock.MySQL, 6, 4)
	}
}

// A lock wait that times out ends its statement and leaves the transaction open, with what was deducted before.
func TestALockWaitThatTimesOutLeavesNoHalfOrder(t *testing.T) {
	t.Parallel()
	a := stocktest.NewAddresses(t)
	o := newOrders(t, a, 10, 10)
	config, err := mysql.ParseDSN(a.MySQL)
	if err != nil {
		t.Fatal(err)
	}
	config.Params = map[string]string{"innodb_lock_wait_timeout": "1"}
	a.MySQL = config.FormatDSN()
	impatient := newOrders(t, a)
	impatient.ids = o.ids
	impatient.deps.MySQL.SetMaxOpenConns(1) // whoever comes next has the same connection
	holder := o.begin()
	if _, err := holder.Exec(takeOne, o.ids[1]); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"update", "for-update", "ledger", "lock-redis-lua"} {
		_, err := impatient.place(name, stock.MySQL, nil, 1, 1)
		if line, named := errors.AsType[*stock.LineError](err); !named || line.GoodsID != o.ids[1] || !errors.Is(err, stock.ErrBusy) {
			t.Errorf("%s: %v, want that the last goods is busy", name, err)
		}
	}
	if err := holder.Rollback(); err != nil {
		t.Fatal(err)
	}
	if _, err := impatient.place("update", stock.MySQL, nil, 1, 1); err != nil {
		t.Fatal(err)
	}
	o.wantLeft(stock.MySQL, 9, 9)
}

// The connection is cut around what makes an order stand: COMMIT, or the script that writes. Whatever the client
// learns, the order is whole.
func TestALostReplyLeavesAWholeOrderOrNone(t *testing.T) {
	t.Parallel()
	a := stocktest.NewAddresses(t)
	direct := newOrders(t, a)
	config, err := mysql.ParseDSN(a.MySQL)
	if err != nil {
		t.Fatal(err)
	}
	hash, err := direct.deps.Redis.ScriptLoad(t.Context(), script(t, "../redis/lua/write_all.lua")).Result()
	if err != nil {
		t.Fatal(err)
	}
	toMySQL := newProxy(t, config.Addr, regexp.MustCompile(`COMMIT$`))
	toRedis := newProxy(t, a.Redis.Addr, regexp.MustCompile(`(?i)evalsha\r\n\$40\r\n`+hash))
	config.Addr = toMySQL.addr()
	a.MySQL = config.FormatDSN()
	a.Redis = &redis.Options{Addr: toRedis.addr(), DB: a.Redis.DB}
	proxied := newOrders(t, a)
	for _, status := range proxied.service.Statuses() {
		for _, on := range status.Orders {
			for _, cut := range []cut{beforeSent, beforeReply} {
				direct.stock(10, 10)
				proxied.ids = direct.ids
				toMySQL.arm(cut)
				toRedis.arm(cut)
				_, err := proxied.place(status.Name, on, nil, 3, 4)
				toMySQL.arm(never)
				toRedis.arm(never)
				if !errors.Is(err, stock.ErrUnknown) {
					t.Errorf("%s on %s, cut %d: %v, want outcome unknown", status.Name, on, cut, err)
				}
				if cut == beforeReply {
					direct.wantLeft(on, 7, 6)
				} else {
					direct.wantLeft(on, 10, 10)
				}
			}
		}
	}
}

func TestAnOrderPassesThePausePoints(t *testing.T) {
	t.Parallel()
	o := newOrders(t, stocktest.NewAddresses(t), 100, 100)
	for _, test := range []struct {
		strategy string
		on       stock.Store
		want     []stock.Point
	}{
		{"update", stock.MySQL, []stock.Point{stock.BeforeWrite, stock.AfterLock, stock.AfterLock, stock.BeforeCommit}},
		{"ledger", stock.MySQL, []stock.Point{stock.BeforeWrite, stock.AfterLock, stock.AfterLock, stock.BeforeCommit}},
		{"for-update", stock.MySQL, []stock.Point{stock.AfterLock, stock.AfterLock, stock.AfterRead, stock.BeforeWrite, stock.BeforeUnlock, stock.BeforeCommit}},
		{"lock-redis-lua", stock.MySQL, []stock.Point{stock.AfterLock, stock.AfterLock, stock.AfterRead, stock.BeforeWrite, stock.BeforeCommit, stock.BeforeUnlock}},
		{"lock-redis-lua", stock.Redis, []stock.Point{stock.AfterLock, stock.AfterLock, stock.AfterRead, stock.BeforeWrite, stock.BeforeUnlock}},
	} {
		var passed []stock.Point
		_, err := o.place(test.strategy, test.on, func(_ context.Context, at stock.Point) error {
			passed = append(passed, at)
			return nil
		}, 1, 1)
		if err != nil || !slices.Equal(passed, test.want) {
			t.Errorf("%s on %s passed %v, %v, want %v", test.strategy, test.on, passed, err, test.want)
		}
	}
}

// A pause that ends with an error ends the order, and gives back what it has locked so far.
func TestAnOrderEndsWithItsPause(t *testing.T) {
	t.Parallel()
	o := newOrders(t, stocktest.NewAddresses(t), 10, 10)
	enough := errors.New("enough")
	for _, name := range []string{"update", "for-update", "lock-redis-lua"} {
		_, err := o.place(name, stock.MySQL, func(_ context.Context, at stock.Point) error {
			if at == stock.AfterLock {
				return enough
			}
			return nil
		}, 1, 1)
		if !errors.Is(err, stock.ErrBusy) || !errors.Is(err, enough) {
			t.Errorf("%s: %v, want busy joined with the pause's error", name, err)
		}
	}
	o.wantLeft(stock.MySQL, 10, 10)
	stocktest.WantIdle(t, o.deps)
}

// One goods is claimed by a later holder before the order is written: the other is not written either.
func TestALateOrderIsRefusedWhole(t *testing.T) {
	t.Parallel()
	o := newOrders(t, stocktest.NewAddresses(t))
	for _, on := range []stock.Store{stock.MySQL, stock.Redis} {
		o.ids = []int64{-stocktest.NewItem(), 1} // Claim is of goods 1: it is to be written last
		for _, id := range o.ids {
			if err := o.service.SetStock(t.Context(), id, 10); err != nil {
				t.Fatal(err)
			}
		}
		_, err := o.place("lock-redis-fenced", on, func(ctx context.Context, at stock.Point) error {
			if at != stock.BeforeWrite {
				return nil
			}
			return readItem1(ctx, fenced(o.deps, on, stock.Holder{Issuer: "lock-redis-fenced", Token: 1 << 62}))
		}, 3, 4)
		if line, named := errors.AsType[*stock.LineError](err); !named || line.GoodsID != 1 || !errors.Is(err, stock.ErrFenced) ||
			!strings.Contains(err.Error(), "token 4611686018427387904 of lock-redis-fenced") {
			t.Errorf("on %s: %v, want that goods 1 is fenced", on, err)
		}
		o.wantLeft(on, 10, 10)
	}
}

// The script looks at every goods before it writes the first: Redis does not undo what a script did before it failed.
func TestAGoodsThatVanishesKeepsAnOrderOnRedisFromBeingWritten(t *testing.T) {
	t.Parallel()
	o := newOrders(t, stocktest.NewAddresses(t), 10, 10)
	for _, name := range []string{"lock-redis-lua", "lock-redis-fenced"} {
		o.stock(10, 10)
		_, err := o.place(name, stock.Redis, func(ctx context.Context, at stock.Point) error {
			if at != stock.BeforeWrite {
				return nil
			}
			return o.deps.Redis.Del(ctx, "stock:{"+strconv.FormatInt(o.ids[1], 10)+"}").Err()
		}, 3, 4)
		if line, named := errors.AsType[*stock.LineError](err); !named || line.GoodsID != o.ids[1] || !errors.Is(err, stock.ErrUnknownItem) {
			t.Errorf("%s: %v, want that the last goods is unknown", name, err)
		}
		o.ids = o.ids[:1]
		o.wantLeft(stock.Redis, 10)
	}
}
