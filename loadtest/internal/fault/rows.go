package fault

import (
	"cmp"
	"database/sql"
	"time"

	"stock/internal/tcpproxy"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/messages"
)

// rowPlays are scenarios of transactions in MySQL, and of what they see of each other and wait for.
var rowPlays = map[string]func(*Stage){
	"commit-after-timeout": func(s *Stage) {
		second := s.newItem()
		lines := []history.Line{{GoodsID: s.Item, Count: 1}, {GoodsID: second, Count: 1}}
		s.whileLocked(second, func() {
			if a := s.send(order{client: "A", at: s.Victim, lines: lines}); a.Outcome != history.Sold {
				s.Provef("another transaction had locked the row of the second item, and A was answered: %s", a.Error)
			}
		})
	},
	"isolation": playIsolation,
	"no-index": func(s *Stage) {
		db, other := s.mysql(), s.newItem()
		if s.variant() != "unique-index" {
			s.strike("the index on goods_id is dropped", execute(db, "ALTER TABLE good_stock DROP INDEX good_stock_goods_id"))
		}
		// Without an index, each cell would wait for the rows of the others.
		s.inTurn(func() { s.buyNeighbour(db, other) })
	},
}

// playIsolation has B buy between another one's read and its write. The reply to A's read is held, or what makes its
// write durable if it reads and writes in one statement.
func playIsolation(s *Stage) {
	const query = "SHOW VARIABLES WHERE Variable_name IN ('transaction_isolation', 'tx_isolation')"
	var name, usual string
	s.check(s.mysql().QueryRowContext(s.ctx, query).Scan(&name, &usual))
	a := s.hold(to(s.Victim, "A", 1), messages.Read, messages.Commit)
	excluded := s.seen(func(m tcpproxy.Message) bool { return s.WritesStock(m) || s.LocksRow(m) }, s.Survivor.MySQL)
	b := s.start(to(s.Survivor, "B", 2))
	s.await(excluded)
	s.Provef("a proxy held %s when B's statement that writes or locks the row came; the default of their "+
		"sessions is %s (%s)", a.what, usual, name)
	a.land()
	b.wait()
}

// buyNeighbour has B buy the other item while the COMMIT of A's order is held.
func (s *Stage) buyNeighbour(db *sql.DB, other int64) {
	a := s.hold(patiently(order{
		client: "A", at: s.Victim, lines: []history.Line{{GoodsID: s.Item, Count: 1}},
	}), messages.Commit)
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
