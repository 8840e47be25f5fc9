package guard

import (
	"slices"

	"stock/internal/locks"
	"stock/internal/stock"
	"stock/internal/stock/mysql"
	"stock/internal/stock/redis"
)

// Replica makes the guarded strategies of one replica. They share what they know of the items, and the connections for
// named locks.
type Replica struct {
	deps        stock.Deps
	stores      map[stock.Store]guardedStore
	connections *OrderConnections // nil if the pool for named locks has no limit
}

// guardedStore is a store that locks guard.
type guardedStore struct {
	stock.Lockable
	items *knownItems
}

// NewReplica makes the strategies' shared parts.
func NewReplica(d stock.Deps) *Replica {
	r := &Replica{deps: d, stores: map[stock.Store]guardedStore{}, connections: NewOrderConnections(d.MySQLLocks)}
	for on, store := range map[stock.Store]stock.Lockable{
		stock.MySQL: mysql.New(d),
		stock.Redis: redis.New(d),
	} {
		r.stores[on] = guardedStore{store, &knownItems{store: store}}
	}
	return r
}

// New guards a store with the lock of a strategy.
func (r *Replica) New(s stock.Strategy, locker locks.Locker, on stock.Store) stock.Deducter {
	store := r.stores[on]
	g := guarded{
		name: s.Name, prefix: r.deps.KeyPrefix, locker: locker, store: store, whole: store.Lockable, fenced: s.Fenced,
		items: store.items, wait: r.deps.LockWait, log: r.deps.Log,
	}
	if slices.Contains(s.Needs, stock.NeedMySQL) {
		g.connections = r.connections
	}
	// A strategy that is wrong for one item takes no orders: they would show nothing new.
	if s.Claim.TwoReplicas != stock.Correct || !store.Atomic() {
		return g
	}
	return guardedOrders{g}
}
