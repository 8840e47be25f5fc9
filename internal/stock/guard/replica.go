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
	items       map[stock.Store]*knownItems
	connections *OrderConnections // nil if the pool for named locks has no limit
}

// NewReplica makes the strategies' shared parts.
func NewReplica(d stock.Deps) *Replica {
	return &Replica{
		deps:        d,
		items:       map[stock.Store]*knownItems{stock.MySQL: {store: mysql.New(d)}, stock.Redis: {store: redis.New(d)}},
		connections: NewOrderConnections(d.MySQLLocks),
	}
}

// New guards a store with the lock of a strategy.
func (r *Replica) New(s stock.Strategy, locker locks.Locker, on stock.Store) stock.Deducter {
	only := s.Name // nothing else guards the stock
	if s.Fenced {
		only = ""
	}
	var store stock.Lockable = mysql.NewGuarded(r.deps, only)
	if on == stock.Redis {
		store = redis.NewGuarded(r.deps, only)
	}
	g := guarded{
		name: s.Name, prefix: r.deps.KeyPrefix, locker: locker, store: store, whole: store, fenced: s.Fenced,
		items: r.items[on], wait: r.deps.LockWait, log: r.deps.Log,
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
