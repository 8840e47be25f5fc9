package stock

import (
	"fmt"
	"slices"

	"stock/internal/locks"
)

// Store names where stock is kept.
type Store string

// The stores.
const (
	MySQL Store = "mysql"
	Redis Store = "redis"
	// Slots is a second stock in MySQL, with each item split over several rows.
	Slots Store = "slots"
	// Units is a third stock in MySQL, with a row for each unit.
	Units Store = "units"
	// NoStore is the store of the baseline, which keeps no stock.
	NoStore Store = "none"
)

// Stores lists the stores that keep stock. The first is the default.
var Stores = []Store{MySQL, Redis, Slots, Units}

// TellsRemaining reports whether a deduction from this store knows what remains. For slots and units, that would
// require reading all rows of the item.
func (s Store) TellsRemaining() bool { return s != Slots && s != Units }

// Need names a server that a strategy cannot do without.
type Need string

// The needs.
const (
	NeedMySQL        Need = "mysql"
	NeedInnoDB       Need = "innodb" // NeedMySQL is MySQL or MariaDB, and not TiDB
	NeedRedis        Need = "redis"
	NeedRedisReplica Need = "redis-replica" // beside the server of NeedRedis
	NeedRedlock      Need = "redlock"
	NeedEtcd         Need = "etcd"
	NeedZooKeeper    Need = "zookeeper"
)

// need is the server that holds the store.
func (s Store) need() Need {
	if s == Slots || s == Units {
		return NeedMySQL
	}
	return Need(s)
}

// Strategy is a row of the catalogue. It has either New, or a Lock that guards read-modify-write.
type Strategy struct {
	Name    string  // such as "for-update"
	Summary string  // one sentence: the mechanism
	Claim   Claim   // what it promises
	Control bool    // wrong on purpose: a lab run in which it comes out clean proves nothing
	Stores  []Store // the stores that it works on; the first is the default
	Needs   []Need  // beside the store itself
	New     func(Deps) Deducter
	Lock    func(Deps) (locks.Locker, error) // one lock for all stores
	Fenced  bool                             // the store checks the lock's token and refuses a late holder
	// LocksOrders reports that a lock also takes orders, on MySQL: under the locks of all their items.
	LocksOrders bool
	// NoKeys says why the strategy does not honour Request.Key and refuses it: see CheckKey. If it is empty, a request
	// that is sent again gets the first answer, from any replica, and deducts nothing.
	NoKeys string
	// WriteBehind reports that the strategy sells in its store and writes to MySQL later: it goes on while MySQL is
	// down.
	WriteBehind bool
	// WriteThrough reports that the strategy sells in its store and writes to MySQL in the same request.
	WriteThrough bool
}

// Idempotent reports whether the strategy honours Request.Key.
func (s Strategy) Idempotent() bool { return s.NoKeys == "" }

// CheckKey refuses an idempotency key with ErrKeyUnsupported if the strategy would ignore it.
func (s Strategy) CheckKey(key string) error {
	if key == "" || s.Idempotent() {
		return nil
	}
	return fmt.Errorf("%w by strategy %s: %s", ErrKeyUnsupported, s.Name, s.NoKeys)
}

// NeedsOn lists the servers that the strategy needs on a store.
func (s Strategy) NeedsOn(on Store) []Need {
	needs := slices.Clone(s.Needs)
	if own := on.need(); on != NoStore && !slices.Contains(needs, own) {
		needs = append(needs, own)
	}
	return needs
}

// TellsRemaining reports whether the strategy's receipts tell what remains, on every store.
func (s Strategy) TellsRemaining() bool {
	return !slices.ContainsFunc(s.Stores, func(on Store) bool { return !on.TellsRemaining() })
}
