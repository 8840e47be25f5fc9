package fault

import (
	"bytes"
	"cmp"
	"database/sql"
	"slices"
	"strings"
	"time"

	"stock/internal/tcpproxy"
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

// isolation returns the story of a sale between another one's read and its write, at an isolation level. The reply to
// A's read is held, or what makes its write durable if it reads and writes in one statement.
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
			const query = "SHOW VARIABLES WHERE Variable_name IN ('transaction_isolation', 'tx_isolation')"
			var name, usual string
			s.check(s.mysql().QueryRowContext(s.ctx, query).Scan(&name, &usual))
			a := s.hold(to(s.Victim, "A", 1), Read, Commit)
			excluded := s.seen(func(m tcpproxy.Message) bool {
				return s.writesStock(m) || s.readsStock(m) && bytes.Contains(m.Data, []byte("FOR UPDATE"))
			}, s.Survivor.MySQL)
			b := s.start(to(s.Survivor, "B", 2))
			s.await(excluded)
			s.Provef("a proxy held %s when B's statement that writes or locks the row came; the default of their "+
				"sessions is %s (%s)", a.what, usual, name)
			a.land()
			b.wait()
		},
	}
}

// oppositeOrder is about two orders that name the same two items in opposite order.
var oppositeOrder = Scenario{
	Name:      "opposite-order",
	Title:     "A orders two items, and B the same two in opposite order; each locks its first before the other is done.",
	Applies:   noStrategy,
	Practices: oppositeOrderPractices,
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
			if a := s.send(order{client: "A", at: s.Victim, lines: lines}); a.Outcome != history.Sold {
				s.Provef("another transaction had locked the row of the second item, and A was answered %s", a.Error)
			}
		})
	},
}

// aba is about a stock that falls and comes back, so that it is what A has read.
var aba = Scenario{
	Name:      "aba",
	Title:     "Before A writes, a unit is sold and another put back, so that the stock is again what A has read.",
	Applies:   noStrategy,
	Practices: abaPractices,
}

// coarseTimestamp is about a timestamp that two writes leave equal. The strategies play that as late-write.
var coarseTimestamp = Scenario{
	Name:      "coarse-timestamp",
	Title:     "A has read the stock and its timestamp. B buys in the second in which the last sale was made.",
	Applies:   noStrategy,
	Practices: coarseTimestampPractices,
}

// unlockBeforeCommit is about a mutex that is unlocked inside the transaction.
var unlockBeforeCommit = Scenario{
	Name:      "unlock-before-commit",
	Title:     "A has written and unlocked the item, and has not committed yet, when B takes the lock and reads.",
	Applies:   noStrategy,
	Practices: unlockPractices,
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

// buyNeighbour has B buy the other item while the COMMIT of A's order is held.
func (s *Stage) buyNeighbour(db *sql.DB, other int64) {
	a := s.hold(patiently(order{
		client: "A", at: s.Victim, lines: []history.Line{{GoodsID: s.Item, Count: 1}},
	}), Commit)
	asked := time.Now()
	buyer := order{client: "B", at: s.Survivor, lines: []history.Line{{GoodsID: other, Count: 2}}}
	b := s.send(buyer)
	const query = `SELECT COUNT(*) FROM information_schema.statistics
		WHERE table_schema = DATABASE() AND table_name = 'good_stock' AND column_name = 'goods_id'`
	var indexes int
	s.check(db.QueryRowContext(s.ctx, query).Scan(&indexes))
	index := "good_stock has a unique index on goods_id"
	if indexes == 0 {
		index = "good_stock has no index on goods_id"
	}
	s.Provef("%s; while a proxy held %s, B was told: %s", index, a.what, cmp.Or(b.Error, string(b.Outcome)))
	a.land()
	if b.Outcome != history.Sold { // it has waited for the row for as long as it may
		buyer.client = "B-again"
		s.buy(buyer, asked)
	}
}
