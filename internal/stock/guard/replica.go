package guard

import (
	"stock/internal/locks"
	"stock/internal/stock"
	"stock/internal/stock/mysql"
	"stock/internal/stock/redis"
)

// Replica makes the guarded strategies of one replica. They share what they know of the items.
type Replica struct {
	deps  stock.Deps
	items map[stock.Store]*knownItems
}

// NewReplica makes what the strategies share.
func NewReplica(d stock.Deps) *Replica {
	return &Replica{
		deps:  d,
		items: map[stock.Store]*knownItems{stock.MySQL: {store: mysql.New(d)}, stock.Redis: {store: redis.New(d)}},
	}
}

// New guards a store with the lock of a strategy.
func (r *Replica) New(s stock.Strategy, locker locks.Locker, on stock.Store) stock.Deducter {
	db := mysql.New(r.deps)
	var store stock.Lockable = db
	if on == stock.Redis {
		store = redis.New(r.deps)
	}
	g := guarded{
		name: s.Name, prefix: r.deps.KeyPrefix, locker: locker, store: store, whole: store, fenced: s.Fenced,
		items: r.items[on], wait: r.deps.LockWait, log: r.deps.Log,
	}
	if s.LocksOrders && on == stock.MySQL {
		return guardedOrders{g, db}
	}
	return g
}
