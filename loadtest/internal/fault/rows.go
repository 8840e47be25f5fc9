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
	"stock/loadtest/internal/oracle"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/scenario"
)

// rowScenarios are stories of transactions in MySQL, and of what they see of each other and wait for.
var rowScenarios = []Scenario{
	isolation("READ UNCOMMITTED"), isolation("READ COMMITTED"), isolation("REPEATABLE READ"), isolation("SERIALIZABLE"),
	scripted("read-before-lock",
		"A's transaction has its first read before it gets the lock, which B holds until it has sold.",
		script("read-then-lock", "loses-updates", report.Unsafe),
		script("read-then-lock-read-committed", "correct", report.Safe),
		script("read-then-lock-for-update", "correct", report.Safe)),
	scripted("two-reads",
		"A locks the row with SELECT FOR UPDATE, and then reads it again by a plain SELECT, which sees older data.",
		script("lock-then-plain-read", "loses-updates", report.Unsafe),
		script("locking-read-alone", "correct", report.Safe)),
	scripted("opposite-order",
		"A orders two items, and B the same two in opposite order; each locks its first before the other is done.",
		script("transactions-in-opposite-order", "deadlock: one of two is rolled back", report.Safe),
		script("redis-locks-in-opposite-order", "deadlock: each waits for the other", report.Unavailable),
		script("redis-locks-in-ascending-order", "correct", report.Safe)),
	{
		Name:  "commit-after-timeout",
		Title: "A has deducted the first item of its order, and waits for the row of the second until MySQL gives up (1205).",
		Applies: applies(func(s scenario.Strategy) bool {
			return s.Stores[0] == oracle.MySQL && slices.Contains(s.Orders, oracle.MySQL)
		}, "it takes no orders in MySQL"),
		Claim: always("correct: the order is rolled back", report.Safe),
		Practices: []Practice{
			script("commit-after-timeout", "half the order is deducted", report.Unsafe),
			script("rollback-after-timeout", "correct", report.Safe),
		},
		Play: func(s *Stage) {
			second := s.newItem()
			lines := []history.Line{{GoodsID: s.Item, Count: 1}, {GoodsID: second, Count: 1}}
			s.whileLocked(second, func() {
				if a := s.send(order{client: "A", at: s.Victim, lines: lines}); a.Outcome != history.Sold {
					s.Provef("another transaction had locked the row of the second item, and A was answered: %s", a.Error)
				}
			})
		},
	},
	scripted("aba", "Before A writes, a unit is sold and another put back, so that the stock is again what A has read.",
		script("two-items-checked-by-stock", "loses-updates", report.Unsafe),
		script("two-items-checked-by-version", "refuses the stale write", report.Safe)),
	scripted("coarse-timestamp",
		"A has read the stock and its timestamp. B buys in the second in which the last sale was made.",
		script("optimistic-timestamp", "loses-updates", report.Unsafe),
		script("optimistic-timestamp-us", "refuses the stale write", report.Safe)),
	scripted("unlock-before-commit",
		"A has written and unlocked the item, and has not committed yet, when B takes the lock and reads.",
		script("unlock-before-commit", "loses-updates", report.Unsafe),
		script("unlock-after-commit", "correct", report.Safe)),
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
			case level == "REPEATABLE-READ":
				return claim("UPDATE locks every row", report.Blocked)
			}
			return claim("at READ COMMITTED, UPDATE passes over locked rows of other items, but what is recorded for its key "+
				"is read from every row", report.Blocked)
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
