package fault

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"stock/internal/tcpproxy"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/scenario"
)

// orderScenarios are about orders of two items.
var orderScenarios = []Scenario{oppositeOrder, commitAfterTimeout}

// oppositeOrder is the story of two orders that name the same two items in opposite order.
var oppositeOrder = Scenario{
	Name:    "opposite-order",
	Title:   "A orders two items, and B the same two in opposite order; each locks its first before the other is done.",
	Applies: takesOrders,
	Claim: func(scenario.Strategy) Claim {
		return claim("correct: items are locked in ascending order", report.Safe)
	},
	Practices: []Practice{
		{
			Name:  "transactions-in-opposite-order",
			Claim: claim("deadlock: one of two is rolled back", report.Safe),
			Play:  playOppositeTransactions,
		},
		{
			Name:  "redis-locks-in-opposite-order",
			Claim: claim("deadlock: both wait until they give up", report.Blocked),
			Play:  func(ctx context.Context, s *Stage) error { return playTwoRedisLocks(ctx, s, false) },
		},
		{
			Name:  "redis-locks-in-ascending-order",
			Claim: claim("correct", report.Safe),
			Play:  func(ctx context.Context, s *Stage) error { return playTwoRedisLocks(ctx, s, true) },
		},
	},
	Play: playOppositeOrders,
}

// takesOrders applies to strategies that take orders on their default store.
func takesOrders(s scenario.Strategy) string {
	if !slices.Contains(s.Orders, s.Stores[0]) {
		return "it takes no orders"
	}
	return ""
}

// playOppositeOrders sends both orders to the service. B is sent while A is parked with its first item locked.
func playOppositeOrders(ctx context.Context, s *Stage) error {
	second, err := s.newItem(ctx)
	if err != nil {
		return err
	}
	ascending := []history.Line{{GoodsID: s.Item, Count: 1}, {GoodsID: second, Count: 1}}
	a, point, err := s.parkAtFirst(ctx, order{client: "A", at: s.Victim, lines: ascending}, "after-lock", "before-commit")
	if err != nil {
		return err
	}
	s.Stepf("A is parked at %s with its first item locked", point)
	locking, forget := s.catchAny(s.Survivor.Proxies(), s.locksItem)
	defer forget()
	b := s.start(ctx, order{
		client: "B", at: s.Survivor, lines: []history.Line{{GoodsID: second, Count: 2}, {GoodsID: s.Item, Count: 2}},
	})
	select {
	case <-locking:
		s.Provef("A is parked at %s, and B's request for the item that A has locked was seen on the wire", point)
	case <-b.done:
		return errors.New("client B was answered before it asked for the item that A has locked")
	case <-ctx.Done():
		return ctx.Err()
	}
	released := time.Now()
	if err := errors.Join(s.release(ctx, a), b.wait()); err != nil {
		return err
	}
	return s.buy(ctx, order{client: "C", at: s.Survivor, lines: ascending}, released)
}

// locksItem matches the message that locks the story's item.
func (s *Stage) locksItem(m tcpproxy.Message) bool {
	if !bytes.Contains(m.Data, []byte(strconv.FormatInt(s.Item, 10))) {
		return false
	}
	if strings.HasPrefix(s.Strategy.Name, "lock-") { // it may look the item up in MySQL first
		return bytes.Contains(m.Data, []byte("GET_LOCK")) || !bytes.Contains(m.Data, []byte("SELECT"))
	}
	return true
}

// catchAny returns a channel that is closed when a message that matches arrives at one of the proxies. It holds none.
// forget must be called when the message is no longer waited for.
func (s *Stage) catchAny(proxies []*tcpproxy.Proxy, match func(tcpproxy.Message) bool) (
	arrived <-chan struct{}, forget func(),
) {
	seen, over := make(chan struct{}), make(chan struct{})
	var once sync.Once
	var all sync.WaitGroup
	for _, proxy := range proxies {
		message := proxy.Catch(match)
		all.Go(func() {
			defer message.Release()
			select {
			case <-message.Arrived():
				once.Do(func() { close(seen) })
			case <-over:
			}
		})
	}
	return seen, func() { close(over); all.Wait() }
}

// take deducts units of any item, and sets in the line what remains.
func (t transaction) take(ctx context.Context, line *history.Line) error {
	const query = "UPDATE good_stock SET stock = stock - ?, version = version + 1 WHERE goods_id = ?"
	if _, err := t.ExecContext(ctx, query, line.Count, line.GoodsID); err != nil {
		return err
	}
	return t.QueryRowContext(ctx, "SELECT stock FROM good_stock WHERE goods_id = ?", line.GoodsID).Scan(&line.Remaining)
}

// playOppositeTransactions has two transactions update two rows in opposite order.
func playOppositeTransactions(ctx context.Context, s *Stage) error {
	db, err := s.openMySQL(ctx, nil)
	if err != nil {
		return err
	}
	defer db.Close()
	second, err := s.newItem(ctx)
	if err != nil {
		return err
	}
	lines := []history.Line{{GoodsID: s.Item, Count: 1}, {GoodsID: second, Count: 1}}
	linesOfB := []history.Line{{GoodsID: second, Count: 2}, {GoodsID: s.Item, Count: 2}}
	var b history.Op
	var all sync.WaitGroup
	hasOne, done := newEvent(), newEvent()
	buyAsB := func() {
		defer done.happen()
		b = s.takeBoth(ctx, db, "B", linesOfB, func() error { hasOne.happen(); return nil })
	}
	waits := false
	var failure error
	a := s.takeBoth(ctx, db, "A", lines, func() error {
		all.Go(buyAsB)
		select {
		case <-hasOne.happened:
		case <-done.happened: // without it
		}
		waits, failure = s.awaitRowWait(ctx, db, s.Item, done.happened)
		if waits {
			s.Stepf("each has updated its first item, and B waits for A's (innodb_trx)")
		}
		return failure
	})
	all.Wait()
	if failure != nil {
		return failure
	}
	if waits && (a.Outcome == history.Sold) != (b.Outcome == history.Sold) && strings.Contains(a.Error+b.Error, "1213") {
		s.Provef("each waited for the row that the other had updated, and one of them got error 1213 (deadlock)")
	}
	return nil
}

// takeBoth orders two items in one transaction. It calls between when it has deducted the first.
func (s *Stage) takeBoth(
	ctx context.Context, db *sql.DB, client string, lines []history.Line, between func() error,
) history.Op {
	return s.performOrder(client, lines, func() error {
		return s.inTransaction(ctx, db, sql.LevelDefault, func(tx transaction) error {
			err := tx.take(ctx, &lines[0])
			if err == nil {
				err = between()
			}
			if err == nil {
				err = tx.take(ctx, &lines[1])
			}
			return err
		})
	})
}

// event is something that happens once. Telling so again does nothing.
type event struct {
	happened <-chan struct{} // closed when it has happened
	happen   func()
}

func newEvent() event {
	c := make(chan struct{})
	return event{c, sync.OnceFunc(func() { close(c) })}
}

// await waits for the event.
func (e event) await(ctx context.Context) error {
	select {
	case <-e.happened:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// redisLockWait is how long a practice waits for a lock in Redis.
const redisLockWait = 1500 * time.Millisecond

// playTwoRedisLocks has two orders lock their two items in Redis, and deduct under both locks.
func playTwoRedisLocks(ctx context.Context, s *Stage, ascending bool) error {
	db, err := s.openMySQL(ctx, nil)
	if err != nil {
		return err
	}
	defer db.Close()
	client := s.openRedis()
	defer client.Close()
	second, err := s.newItem(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	a, b := newTwoLocks("A", 1, s.Item, second), newTwoLocks("B", 2, second, s.Item)
	prove := s.proveCrossed
	if ascending {
		b = newTwoLocks("B", 2, s.Item, second)
		prove = s.proveBehind
	}
	proven := newEvent() // until then, nobody has both locks
	a.goOn, b.goOn = proven, proven
	if !ascending {
		a.goOn, b.goOn = b.hasFirst, a.hasFirst
	}
	var both sync.WaitGroup
	both.Go(func() { a.buy(ctx, s, db, client) })
	if err = a.hasFirst.await(ctx); err == nil {
		both.Go(func() { b.buy(ctx, s, db, client) })
		err = prove(ctx, client, a, b)
	}
	proven.happen()
	both.Wait()
	if err != nil {
		return err
	}
	return s.buyWithin(ctx, "C", began, patience, func(name string) (history.Op, error) {
		return newTwoLocks(name, 1, s.Item, second).buy(ctx, s, db, client), nil
	})
}

// proveCrossed proves that A and B each have one lock, and were refused the other's.
func (s *Stage) proveCrossed(ctx context.Context, client *redis.Client, a, b *twoLocks) error {
	if err := errors.Join(a.refused.await(ctx), b.refused.await(ctx)); err != nil {
		return err
	}
	owners, err := client.MGet(ctx, s.itemLock(a.lines[0].GoodsID), s.itemLock(b.lines[0].GoodsID)).Result()
	switch {
	case err != nil:
		return err
	case owners[0] != a.client || owners[1] != b.client:
		return fmt.Errorf("the locks of the two items are held by %v and %v", owners[0], owners[1])
	}
	s.Provef("each has one lock and was refused the other's: Redis has %v and %v as their holders", owners[0], owners[1])
	return nil
}

// proveBehind proves that A has the lock that B asks for first.
func (s *Stage) proveBehind(ctx context.Context, client *redis.Client, a, b *twoLocks) error {
	if err := b.refused.await(ctx); err != nil {
		return err
	}
	owner, err := client.Get(ctx, s.itemLock(b.lines[0].GoodsID)).Result()
	switch {
	case err != nil:
		return err
	case owner != a.client:
		return fmt.Errorf("the lock of the first item is held by %q", owner)
	}
	s.Provef("B was refused the lock of its first item, which A has: Redis has %s as its holder", owner)
	return nil
}

// twoLocks is an order that locks its items one after the other, in the given order.
type twoLocks struct {
	client            string
	lines             []history.Line
	hasFirst, refused event // a lock; or the order has ended
	goOn              event // it may ask for its second lock
}

// newTwoLocks returns an order of two items that does not wait for anybody before its second lock.
func newTwoLocks(client string, count int64, items ...int64) *twoLocks {
	o := &twoLocks{client: client, hasFirst: newEvent(), refused: newEvent()}
	for _, item := range items {
		o.lines = append(o.lines, history.Line{GoodsID: item, Count: count})
	}
	o.goOn = o.hasFirst
	return o
}

// itemLock is the key of the lock of an item, of the practices that lock several.
func (s *Stage) itemLock(item int64) string {
	return s.Addresses.KeyPrefix + "practice:{" + strconv.FormatInt(item, 10) + "}"
}

func (o *twoLocks) buy(ctx context.Context, s *Stage, db *sql.DB, client *redis.Client) history.Op {
	defer o.hasFirst.happen()
	defer o.refused.happen()
	return s.performOrder(o.client, o.lines, func() error {
		var held []string
		defer func() { client.Del(ctx, held...) }()
		for _, line := range o.lines {
			if err := o.lock(ctx, client, s.itemLock(line.GoodsID)); err != nil {
				return err
			}
			held = append(held, s.itemLock(line.GoodsID))
			o.hasFirst.happen()
			if err := o.goOn.await(ctx); err != nil {
				return err
			}
		}
		return s.inTransaction(ctx, db, sql.LevelDefault, func(tx transaction) error {
			return errors.Join(tx.take(ctx, &o.lines[0]), tx.take(ctx, &o.lines[1]))
		})
	})
}

// lock tries to set the key until it is granted or the longest wait has passed.
func (o *twoLocks) lock(ctx context.Context, client *redis.Client, key string) error {
	for deadline := time.Now().Add(redisLockWait); ; time.Sleep(pollInterval) {
		err := client.SetArgs(ctx, key, o.client, redis.SetArgs{Mode: "NX", TTL: time.Minute}).Err()
		if !errors.Is(err, redis.Nil) {
			return err
		}
		o.refused.happen()
		if time.Now().After(deadline) {
			return errors.New("the lock of another is in the way: gave up after " + redisLockWait.String())
		}
	}
}

// commitAfterTimeout is the story of an order that waits for its second row too long.
var commitAfterTimeout = Scenario{
	Name:  "commit-after-timeout",
	Title: "A has deducted the first item of its order, and waits for the row of the second until MySQL gives up (1205).",
	Applies: func(s scenario.Strategy) string {
		if !slices.Contains(s.Orders, "mysql") || s.Stores[0] != "mysql" {
			return "it takes no orders in MySQL"
		}
		return ""
	},
	Claim: func(scenario.Strategy) Claim { return claim("correct: the order is rolled back", report.Safe) },
	Practices: []Practice{
		{
			Name:  "commit-after-timeout",
			Claim: claim("half the order is deducted", report.Unsafe),
			Play:  func(ctx context.Context, s *Stage) error { return playLockWaitTimeout(ctx, s, (*sql.Tx).Commit) },
		},
		{
			Name:  "rollback-after-timeout",
			Claim: claim("correct", report.Safe),
			Play:  func(ctx context.Context, s *Stage) error { return playLockWaitTimeout(ctx, s, (*sql.Tx).Rollback) },
		},
	},
	Play: func(ctx context.Context, s *Stage) error {
		db, err := s.openMySQL(ctx, nil)
		if err != nil {
			return err
		}
		defer db.Close()
		return s.whileSecondRowIsLocked(ctx, db, func(second int64) error {
			lines := []history.Line{{GoodsID: s.Item, Count: 1}, {GoodsID: second, Count: 1}}
			a := s.start(ctx, order{client: "A", at: s.Victim, lines: lines})
			waits, err := s.awaitRowWait(ctx, db, second, a.done)
			if err != nil {
				return err
			}
			if err := a.wait(); err != nil {
				return err
			}
			if waits && a.op.Outcome != history.Sold {
				s.Provef("A waited for the row of the second item (innodb_trx) and was answered %s", a.op.Error)
			}
			return nil
		})
	},
}

// whileSecondRowIsLocked calls do while another transaction has locked the row of a second item, which comes after the
// story's own.
func (s *Stage) whileSecondRowIsLocked(ctx context.Context, db *sql.DB, do func(second int64) error) error {
	second, err := s.newItem(ctx)
	if err != nil {
		return err
	}
	err = s.inTransaction(ctx, db, sql.LevelDefault, func(tx transaction) error {
		tx.item = second
		if _, err := tx.readForUpdate(ctx); err != nil {
			return err
		}
		s.Stepf("another transaction has locked the row of the second item, %d", second)
		return do(second)
	})
	return err
}

// playLockWaitTimeout ends A's transaction in the given way after the error.
func playLockWaitTimeout(ctx context.Context, s *Stage, end func(*sql.Tx) error) error {
	db, err := s.openMySQL(ctx, map[string]string{"innodb_lock_wait_timeout": "1"})
	if err != nil {
		return err
	}
	defer db.Close()
	return s.whileSecondRowIsLocked(ctx, db, func(second int64) error {
		lines := []history.Line{{GoodsID: s.Item, Count: 1}, {GoodsID: second, Count: 1}}
		s.performOrder("A", lines, func() error {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			a := transaction{tx, s.Item}
			err = errors.Join(a.take(ctx, &lines[0]), a.take(ctx, &lines[1]))
			if refused, ok := errors.AsType[*mysql.MySQLError](err); ok && refused.Number == 1205 {
				s.Provef("A has deducted the first item, and gets error 1205 (lock wait timeout) for the second")
			}
			return errors.Join(err, end(tx))
		})
		return nil
	})
}
