package fault

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"stock/loadtest/internal/history"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/scenario"
)

// rowScenarios are stories of transactions in MySQL, and of what they see of each other and wait for.
var rowScenarios = []Scenario{
	isolation("READ UNCOMMITTED"), isolation("READ COMMITTED"), isolation("REPEATABLE READ"), isolation("SERIALIZABLE"),
	readBeforeLock, twoReads, oppositeOrder, commitAfterTimeout, aba, coarseTimestamp, unlockBeforeCommit,
	lockedNeighbour("repeatable-read", "REPEATABLE-READ", true),
	lockedNeighbour("read-committed", "READ-COMMITTED", true),
	lockedNeighbour("unique-index", "REPEATABLE-READ", false),
}

// startAndWait starts a request, and waits until one of its statements waits for the row of an item, or until it is
// answered. It reports whether it waits.
func (s *Stage) startAndWait(o order, item int64) (p *pending, waits bool) {
	db := s.mysql()
	p = s.start(o)
	waits, err := s.awaitRowWait(s.ctx, db, item, p.done)
	s.check(err)
	if !waits {
		p.wait()
	}
	return p, waits
}

// isolation returns the story of a sale between another one's read and its write, at an isolation level. B buys while A
// is parked after its read, or after its write if it reads and writes in one statement.
func isolation(level string) Scenario {
	words := strings.ReplaceAll(level, " ", "-") // as the system variable spells it
	script := "read-modify-write-" + strings.ToLower(words)
	inTransaction := claim("loses-updates", report.Unsafe)
	if level == "SERIALIZABLE" {
		inTransaction = claim("one of two is rolled back", report.Safe)
	}
	return Scenario{
		Name:    "isolation/" + strings.ToLower(words),
		Title:   "B buys after A has read the stock and before A writes it, at " + level + ".",
		Applies: only("none", "update", "for-update", "optimistic-version", "serializable"),
		Claim: func(s scenario.Strategy) Claim {
			if s.Claim.LateWrite == "loses-updates" {
				return claim(s.Claim.LateWrite+" at any level: each statement is a transaction of its own", report.Unsafe)
			}
			return claim("correct at any level", report.Safe)
		},
		Practices: []Practice{{Name: "read-modify-write", Claim: inTransaction, Script: script}},
		On:        Setting{Isolation: words},
		Play: func(s *Stage) {
			db := s.mysql()
			a, point := s.park(to(s.Victim, "A", 1), "after-read", "before-commit")
			s.Stepf("A is parked at %s", point)
			b := s.start(to(s.Survivor, "B", 2))
			waits, err := s.awaitTransaction(s.ctx, db, b.done, waitsFor(s.Item))
			s.check(err)
			if waits != nil {
				s.proveLevel(point, waits.level, level)
			} else {
				s.proveDefault(db, point, b.wait())
			}
			s.release(a)
			b.wait()
		},
	}
}

// proveLevel proves that B's transaction waits for A's, and that it has the isolation level that it should have.
func (s *Stage) proveLevel(point, level, usual string) {
	want := usual
	if s.Strategy.Name == "serializable" { // it chooses one itself
		want = "SERIALIZABLE"
	}
	if level != want {
		s.failf("the transaction of client B is at %s, and not at %s", level, want)
	}
	s.Provef("A is parked at %s, and B's statement waits for the row, in a transaction at %s (innodb_trx)", point, level)
}

// proveDefault proves that B has bought, and says at which isolation level transactions are that choose none.
func (s *Stage) proveDefault(db *sql.DB, point string, b history.Op) {
	if b.Outcome != history.Sold {
		s.failf("client B was not sold anything: %s", b.Error)
	}
	const query = "SHOW VARIABLES WHERE Variable_name IN ('transaction_isolation', 'tx_isolation')"
	var name, level string
	s.check(db.QueryRowContext(s.ctx, query).Scan(&name, &level))
	s.Provef("A is parked at %s, and B has bought meanwhile; the default of their sessions is %s (%s)", point, level, name)
}

// oppositeOrder is the story of two orders that name the same two items in opposite order. B is sent while A is parked
// with its first item locked.
var oppositeOrder = Scenario{
	Name:      "opposite-order",
	Title:     "A orders two items, and B the same two in opposite order; each locks its first before the other is done.",
	Applies:   takesOrders,
	Claim:     always("correct: items are locked in ascending order", report.Safe),
	Practices: oppositeOrderPractices,
	Play: func(s *Stage) {
		second := s.newItem()
		ascending := []history.Line{{GoodsID: s.Item, Count: 1}, {GoodsID: second, Count: 1}}
		a, point := s.park(order{client: "A", at: s.Victim, lines: ascending}, "after-lock", "before-commit")
		s.Stepf("A is parked at %s with its first item locked", point)
		locking := s.seen(s.locksItem, s.Survivor.Proxies()...)
		b := s.start(order{
			client: "B", at: s.Survivor, lines: []history.Line{{GoodsID: second, Count: 2}, {GoodsID: s.Item, Count: 2}},
		})
		if b.answeredBefore(locking) {
			b.wait()
			s.failf("client B was answered before it asked for the item that A has locked")
		}
		s.Provef("A is parked at %s, and B's request for the item that A has locked was seen on the wire", point)
		released := time.Now()
		s.release(a)
		b.wait()
		s.buy(order{client: "C", at: s.Survivor, lines: ascending}, released)
	},
}

// takesOrders applies to strategies that take orders on their default store.
func takesOrders(s scenario.Strategy) string {
	if !slices.Contains(s.Orders, s.Stores[0]) {
		return "it takes no orders"
	}
	return ""
}

// commitAfterTimeout is the story of an order that waits for its second row too long.
var commitAfterTimeout = Scenario{
	Name:  "commit-after-timeout",
	Title: "A has deducted the first item of its order, and waits for the row of the second until MySQL gives up (1205).",
	Applies: func(s scenario.Strategy) string {
		if s.Stores[0] != "mysql" || takesOrders(s) != "" {
			return "it takes no orders in MySQL"
		}
		return ""
	},
	Claim:     always("correct: the order is rolled back", report.Safe),
	Practices: commitAfterTimeoutPractices,
	Play: func(s *Stage) {
		second := s.newItem()
		lines := []history.Line{{GoodsID: s.Item, Count: 1}, {GoodsID: second, Count: 1}}
		s.whileLocked(second, func() {
			a, waits := s.startAndWait(order{client: "A", at: s.Victim, lines: lines}, second)
			if op := a.wait(); waits && op.Outcome != history.Sold {
				s.Provef("A waited for the row of the second item (innodb_trx) and was answered %s", op.Error)
			}
		})
	},
}

// acceptsABA is the strategy whose check does not notice that the stock has changed and come back.
const acceptsABA = "optimistic-stock"

// aba is the story of a stock that falls and comes back, so that it is what A has read. Where the stock is all that was
// read, the stale write is right all the same. The practices read and write more than that.
var aba = Scenario{
	Name:    "aba",
	Title:   "Before A writes, a unit is sold and another put back, so that the stock is again what A has read.",
	Applies: only("optimistic-stock", "optimistic-version", "optimistic-spin", "optimistic-timestamp-us", "redis-watch"),
	Claim: func(s scenario.Strategy) Claim {
		if s.Name == acceptsABA {
			return claim("accepts the stale write, and the stock is right", report.Safe)
		}
		return claim("refuses the stale write", report.Safe)
	},
	Practices: abaPractices,
	On:        Setting{Args: patient()},
	Play: func(s *Stage) {
		a, _ := s.park(patiently(to(s.Victim, "A", 1)), "before-write")
		s.Stepf("A has read %d", units)
		s.mustBuy(to(s.Survivor, "B", 1))
		s.restock(s.Item, 1)
		stock := s.stock(s.Store)
		op := s.release(a)
		switch accepted := op.Attempts == 1; {
		case op.Outcome != history.Sold:
			s.failf("client A was not sold anything: %s", op.Error)
		case stock != units:
			s.failf("the stock is %d, and not %d again", stock, units)
		case accepted != (s.Strategy.Name == acceptsABA):
			s.Failf("the stock was %d again before A wrote, and A sold at attempt %d", stock, op.Attempts)
		default:
			s.Provef("the stock was %d again before A wrote, and A sold at attempt %d", stock, op.Attempts)
		}
	},
}

// coarseTimestamp is the story of a timestamp that two writes leave equal.
var coarseTimestamp = Scenario{
	Name:    "coarse-timestamp",
	Title:   "B buys after A has read the stock and its timestamp, within the same second as the sale before.",
	Applies: only("optimistic-timestamp", "optimistic-timestamp-us"),
	Claim: func(s scenario.Strategy) Claim {
		if s.Control {
			return claim("loses-updates", report.Unsafe)
		}
		return claim("refuses the stale write", report.Safe)
	},
	On: Setting{Args: patient()},
	Play: func(s *Stage) {
		db := s.mysql()
		s.setManyUnits()
		const tries = 20 // a new second may begin in between
		for try := range tries {
			if s.sellWithinSecond(db, fmt.Sprint(try+1)) {
				return
			}
		}
		s.failf("in each of %d tries, a new second began", tries)
	},
}

// sellWithinSecond reports whether the timestamp that A has read is still that of the row when A writes.
func (s *Stage) sellWithinSecond(db *sql.DB, number string) (struck bool) {
	stamp := func() (stamp time.Time) { // of the last write, in whole seconds
		const query = "SELECT stamp_seconds FROM good_stock WHERE goods_id = ?"
		s.check(db.QueryRowContext(s.ctx, query, s.Item).Scan(&stamp))
		return stamp
	}
	s.send(to(s.Survivor, "Z"+number, 1))
	a, _ := s.park(patiently(to(s.Victim, "A"+number, 1)), "before-write")
	read := stamp()
	b := s.send(to(s.Survivor, "B"+number, 2))
	found := stamp()
	s.release(a)
	if b.Outcome != history.Sold || !read.Equal(found) {
		s.Stepf("a new second has begun: A has read %s, and finds %s", read.Format(time.TimeOnly),
			found.Format(time.TimeOnly))
		return false
	}
	s.Provef("A has read the timestamp %s, and finds the same after B has bought", read.Format(time.TimeOnly))
	return true
}

// unlockBeforeCommit is the story of a mutex that is unlocked inside the transaction. Both clients use the same
// replica, because a mutex excludes nobody else.
var unlockBeforeCommit = Scenario{
	Name:    "unlock-before-commit",
	Title:   "B sends its request to the replica where A has written and has not committed yet.",
	Applies: only("mutex-in-tx", "mutex-around-tx"),
	Claim: func(s scenario.Strategy) Claim {
		if s.Control {
			return claim("loses-updates: B gets the mutex, and reads what was before A's write", report.Unsafe)
		}
		return claim("B waits for the mutex until A has committed", report.Safe)
	},
	On: Setting{Args: patient()},
	Play: func(s *Stage) {
		a, _ := s.park(patiently(to(s.Victim, "A", 1)), "before-commit")
		b, writes := s.startAndWait(to(s.Victim, "B", 2), s.Item)
		switch {
		case writes:
			s.Provef("A is parked before COMMIT, and B's UPDATE waits for A's row (innodb_trx): B has the mutex")
		case b.op.Outcome == history.Busy:
			s.Provef("A is parked before COMMIT, and B was refused because it did not get the mutex within %v", lease)
		case b.op.Outcome == history.Sold:
			s.Failf("B was sold the item while A had not committed")
		default:
			s.failf("client B was answered while A had not committed: %s", b.op.Error)
		}
		s.release(a)
		committed := time.Now()
		b.wait()
		s.buy(to(s.Victim, "C", 3), committed)
	},
}

// lockedNeighbour returns the story of a buyer of another item than the one that a transaction has locked: does the
// transaction find its row by an index?
func lockedNeighbour(variant, level string, dropIndex bool) Scenario {
	title := "A's transaction has locked the row of one item, and B buys another, at "
	if dropIndex {
		title = "The index on goods_id is dropped; " + title
	}
	return Scenario{
		Name:    "no-index/" + variant,
		Title:   title + level + ".",
		Applies: only("for-update", "update"),
		Claim: func(s scenario.Strategy) Claim {
			switch {
			case !dropIndex:
				return claim("locks its row alone", report.Safe)
			case s.Name == "for-update":
				return claim("SELECT FOR UPDATE waits for every row", report.Blocked)
			case s.Name == "update" && level == "REPEATABLE-READ":
				return claim("UPDATE locks every row", report.Blocked)
			}
			return claim("at READ COMMITTED, UPDATE passes over locked rows of other items", report.Safe)
		},
		On: Setting{Database: true, Isolation: level, Args: patient()},
		Play: func(s *Stage) {
			db, other := s.mysql(), s.newItem()
			if dropIndex {
				s.strike("the index on goods_id is dropped", execute(db, "ALTER TABLE good_stock DROP INDEX good_stock_goods_id"))
			}
			// Without an index, each cell would wait for the rows of the others.
			s.inTurn(func() { s.buyNeighbour(db, other) })
		},
	}
}

// buyNeighbour has B buy the other item while A's order is parked before COMMIT.
func (s *Stage) buyNeighbour(db *sql.DB, other int64) {
	a, _ := s.park(patiently(order{
		client: "A", at: s.Victim, lines: []history.Line{{GoodsID: s.Item, Count: 1}},
	}), "before-commit")
	asked := time.Now()
	buyer := order{client: "B", at: s.Survivor, lines: []history.Line{{GoodsID: other, Count: 2}}}
	b, waits := s.startAndWait(buyer, other)
	const query = `SELECT COUNT(*) FROM information_schema.statistics
		WHERE table_schema = DATABASE() AND table_name = 'good_stock' AND column_name = 'goods_id'`
	var indexes int
	s.check(db.QueryRowContext(s.ctx, query).Scan(&indexes))
	index := "good_stock has a unique index on goods_id"
	if indexes == 0 {
		index = "good_stock has no index on goods_id"
	}
	if !waits {
		if b.op.Outcome != history.Sold {
			s.failf("client B did not wait for a row, and was not sold anything: %s", b.op.Error)
		}
		s.Provef("%s; A is parked before COMMIT, and B is answered meanwhile", index)
		s.release(a)
		return
	}
	s.Provef("%s; A is parked before COMMIT, and B's statement about item %d waits for a row (innodb_trx)", index, other)
	b.wait()
	s.release(a)
	buyer.client = "B-again"
	s.buy(buyer, asked)
}

// awaitTransaction waits until a transaction matches, and returns it. It returns nil if done is closed first.
func (d *Deployment) awaitTransaction(
	ctx context.Context, db *sql.DB, done <-chan struct{}, match func(innodbTrx) bool,
) (*innodbTrx, error) {
	began := time.Now()
	for {
		if t, err := d.waits.find(ctx, db, began, match); t != nil || err != nil {
			return t, err
		}
		select {
		case <-done:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pollInterval):
		}
	}
}

// waitsFor matches a transaction whose statement names an item and waits for a row.
func waitsFor(item int64) func(innodbTrx) bool {
	return func(t innodbTrx) bool { return t.waits && strings.Contains(t.statement, strconv.FormatInt(item, 10)) }
}

// awaitRowWait waits until a statement that names the item waits for a locked row, and reports whether one does. It
// returns false if done is closed first.
func (d *Deployment) awaitRowWait(
	ctx context.Context, db *sql.DB, item int64, done <-chan struct{},
) (waits bool, err error) {
	t, err := d.awaitTransaction(ctx, db, done, waitsFor(item))
	return t != nil, err
}
