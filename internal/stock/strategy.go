package stock

import (
	"context"
	"fmt"

	"stock/internal/locks"
)

// Deducter takes units of one goods out of stock, or says why it cannot.
type Deducter interface {
	// Deduct returns a Receipt or an error that is one of this package's refusals or ErrUnknown. Beside an error, only
	// the Receipt's Replayed counts.
	Deduct(ctx context.Context, req Request) (Receipt, error)
}

// Store names where the stock of a goods is kept.
type Store string

// The stores.
const (
	MySQL Store = "mysql"
	Redis Store = "redis"
	// Slots is MySQL, too: a stock beside the other, of which each goods is split over several rows.
	Slots Store = "slots"
	// NoStore is the store of the baseline, which keeps none.
	NoStore Store = "none"
)

// Stores lists the stores that keep stock; the first is meant where none is named.
var Stores = []Store{MySQL, Redis, Slots}

// Need names a server that a strategy cannot do without.
type Need string

// The needs.
const (
	NeedMySQL     Need = "mysql"
	NeedRedis     Need = "redis"
	NeedRedlock   Need = "redlock"
	NeedEtcd      Need = "etcd"
	NeedZooKeeper Need = "zookeeper"
)

// need is the server in which the store is.
func (s Store) need() Need {
	if s == Slots {
		return NeedMySQL
	}
	return Need(s)
}

// Promise says what a strategy's arithmetic is worth on a given number of replicas.
type Promise string

// The promises.
const (
	Correct      Promise = "correct"       // sells nothing twice, loses nothing, refuses nobody while stock is left
	LosesUpdates Promise = "loses-updates" // two buyers are sold the same unit
	Oversells    Promise = "oversells"     // sells more than there is, as soon as demand exceeds the stock
	SellsNothing Promise = "sells-nothing" // the baseline: confirms everything and deducts nothing
)

// Claim is what a strategy promises. The lab measures the promises and fails where claim and measurement differ.
type Claim struct {
	OneReplica  Promise `json:"one_replica"`
	TwoReplicas Promise `json:"two_replicas"`
	// Restocked takes the place of a Correct while Restock puts units back. It does so beside every lock: who has read the
	// stock before it, and writes after it, loses its units, unless the write finds out.
	Restocked Promise `json:"restocked"`
	// Exclusive says that, where it is Correct, no two critical sections of one goods overlap while no lease runs out.
	Exclusive bool `json:"exclusive"`
	// HolderCrash, HolderPause and ClientRetry say in words what happens when a replica dies inside the critical
	// section, is stopped there past every lease, and when a client sends a request again after a timeout.
	HolderCrash string `json:"holder_crash"`
	HolderPause string `json:"holder_pause"`
	ClientRetry string `json:"client_retry"`
}

// Strategy is a row of the Catalogue. It has either a New, or a Lock that is put around read-modify-write.
type Strategy struct {
	Name    string  // "for-update"
	Summary string  // one sentence: the mechanism
	Claim   Claim   // what it promises
	Control bool    // wrong on purpose: a lab run in which it comes out clean proves nothing
	Stores  []Store // those that it works on; the first is the default
	Needs   []Need  // beside the store itself
	New     func(Deps, Store) (Deducter, error)
	Lock    func(Deps) (locks.Locker, error) // one for all stores
	Untold  bool                             // its receipts do not tell what remains: nobody knows without a look at all rows
	Fenced  bool                             // the lock's token goes to the store, which refuses a holder that is late
	// Idempotent says that it honours Request.Key: a request that is sent again gets the first answer, whichever replica
	// it comes to, and deducts nothing. Another strategy would deduct again, and must refuse the key: see CheckKey.
	Idempotent bool
	// WriteBehind says that it sells in its store, and that MySQL is told afterwards: it goes on while MySQL is down.
	WriteBehind bool
}

// CheckKey refuses an idempotency key with ErrKeyUnsupported where the strategy would ignore it.
func (s Strategy) CheckKey(key string) error {
	if key == "" || s.Idempotent {
		return nil
	}
	return fmt.Errorf("%w by strategy %s", ErrKeyUnsupported, s.Name)
}
