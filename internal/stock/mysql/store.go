// Package mysql deducts from stock that is kept in MySQL, MariaDB or TiDB: one file for each strategy.
package mysql

import (
	"time"

	"github.com/jmoiron/sqlx"

	"stock/internal/stock"
	"stock/internal/stock/share"
)

// Store keeps the stock in the table good_stock. Every write increments the version, so that strategies can be mixed on
// one row without optimistic locking missing a change.
//
// With DB alone, a Store waits for connections and rows as long as the pool and the server let it.
type Store struct {
	DB *sqlx.DB

	name   stock.Store // in the ledger
	slot   int         // in the ledger: that of a sale from slots whose epoch is read
	shares *share.Limiter
	tidb   bool
	upkeep bool          // its connections count against Upkeep, whatever they are used for
	wait   time.Duration // longest wait for a connection, and then for a row; 0 for no limit
	reply  time.Duration // longest wait for a reply: see stock.Deps
}

// New makes the store for strategies.
func New(d stock.Deps) Store {
	return newStore(d, stock.MySQL)
}

func newStore(d stock.Deps, name stock.Store) Store {
	return Store{
		DB: d.MySQL, name: name, shares: d.MySQLShares, tidb: d.TiDB, wait: d.LockWait,
		reply: d.MySQLReply,
	}
}

// at is the store for sales from a slot, whose row they lock.
func (s Store) at(slot int) Store {
	s.slot = slot
	return s
}
