package stock

import (
	"errors"
	"fmt"
	"slices"

	"stock/internal/locks"
)

// Catalogue lists every strategy. A new one is a file of its own and a row here.
var Catalogue = []Strategy{
	{
		Name:    "noop",
		Summary: "Confirms and deducts nothing: the cost of a request when the store costs nothing.",
		Claim:   Claim{OneReplica: SellsNothing, TwoReplicas: SellsNothing, Restocked: SellsNothing, HolderCrash: "nothing to lose", HolderPause: "nothing to lose", ClientRetry: "nothing is deducted"},
		Stores:  []Store{NoStore},
		New:     newNoop,
	},
	{
		Name:    "none",
		Summary: "SELECT the stock, then UPDATE it to what was read less the count.",
		Claim:   Claim{OneReplica: LosesUpdates, TwoReplicas: LosesUpdates, Restocked: LosesUpdates, HolderCrash: "safe", HolderPause: losesUpdate, ClientRetry: deductsAgain},
		Control: true,
		Stores:  []Store{MySQL},
		Lock:    func(Deps) (locks.Locker, error) { return locks.None{}, nil },
	},
	{
		Name:    "decrement",
		Summary: "UPDATE stock = stock - count, without asking whether there is enough.",
		Claim:   Claim{OneReplica: Oversells, TwoReplicas: Oversells, Restocked: Oversells, HolderCrash: "safe", HolderPause: "safe", ClientRetry: deductsAgain},
		Control: true,
		Stores:  []Store{MySQL},
		New:     newDecrement,
	},
	{
		Name:    "mutex",
		Summary: "One mutex per goods in the process, around read-modify-write.",
		Claim:   Claim{OneReplica: Correct, TwoReplicas: LosesUpdates, Restocked: LosesUpdates, Exclusive: true, HolderCrash: "safe", HolderPause: losesUpdate, ClientRetry: deductsAgain},
		Stores:  []Store{MySQL},
		Lock:    func(Deps) (locks.Locker, error) { return new(locks.Mutex), nil },
	},
	{
		Name:    "mutex-per-request",
		Summary: "Every request locks a mutex of its own around read-modify-write.",
		Claim:   Claim{OneReplica: LosesUpdates, TwoReplicas: LosesUpdates, Restocked: LosesUpdates, HolderCrash: "safe", HolderPause: losesUpdate, ClientRetry: deductsAgain},
		Control: true,
		Stores:  []Store{MySQL},
		Lock:    func(Deps) (locks.Locker, error) { return ownMutex{}, nil },
	},
	{
		Name:    "mutex-in-tx",
		Summary: "A mutex inside the transaction: it is given back before COMMIT.",
		Claim:   Claim{OneReplica: LosesUpdates, TwoReplicas: LosesUpdates, Restocked: LosesUpdates, HolderCrash: "safe", HolderPause: losesUpdate, ClientRetry: deductsAgain},
		Control: true,
		Stores:  []Store{MySQL},
		New:     newMutexInTx,
	},
	{
		Name:    "update",
		Summary: "One conditional UPDATE that also brings back the units left.",
		Claim:   Claim{OneReplica: Correct, TwoReplicas: Correct, Restocked: Correct, Exclusive: true, HolderCrash: "safe", HolderPause: "safe", ClientRetry: deductsAgain},
		Stores:  []Store{MySQL},
		New:     newUpdate,
	},
	{
		Name:    "for-update",
		Summary: "SELECT FOR UPDATE, UPDATE, COMMIT: pessimistic locking of the row.",
		Claim:   Claim{OneReplica: Correct, TwoReplicas: Correct, Restocked: Correct, Exclusive: true, HolderCrash: "safe: the server rolls back", HolderPause: blocksMeanwhile, ClientRetry: deductsAgain},
		Stores:  []Store{MySQL},
		New:     newForUpdate,
	},
	{
		Name:    "optimistic-version",
		Summary: "UPDATE where the version is still the one read, else wait for a turn and retry: optimistic locking.",
		Claim:   Claim{OneReplica: Correct, TwoReplicas: Correct, Restocked: Correct, Exclusive: true, HolderCrash: "safe", HolderPause: refusedByFence, ClientRetry: deductsAgain},
		Stores:  []Store{MySQL},
		New:     newOptimisticVersion,
	},
	{
		Name:    "optimistic-timestamp",
		Summary: "As optimistic-version, with a timestamp of whole seconds in place of the version.",
		Claim:   Claim{OneReplica: LosesUpdates, TwoReplicas: LosesUpdates, Restocked: LosesUpdates, HolderCrash: "safe", HolderPause: losesUpdate + " within a second", ClientRetry: deductsAgain},
		Control: true,
		Stores:  []Store{MySQL},
		New:     newOptimisticTimestamp,
	},
	{
		Name:    "optimistic-timestamp-us",
		Summary: "As optimistic-version, with a timestamp in microseconds that every write moves forward.",
		Claim:   Claim{OneReplica: Correct, TwoReplicas: Correct, Restocked: Correct, Exclusive: true, HolderCrash: "safe", HolderPause: refusedByFence + ", unless another strategy wrote twice in one microsecond", ClientRetry: deductsAgain},
		Stores:  []Store{MySQL},
		New:     newOptimisticTimestampMicros,
	},
	{
		Name:    "optimistic-stock",
		Summary: "As optimistic-version, with the stock itself in place of the version.",
		Claim:   Claim{OneReplica: Correct, TwoReplicas: Correct, Restocked: Correct, Exclusive: true, HolderCrash: "safe", HolderPause: refusedByFence + ", unless a restock has brought the same stock back (ABA)", ClientRetry: deductsAgain},
		Stores:  []Store{MySQL},
		New:     newOptimisticStock,
	},
	{
		Name:    "serializable",
		Summary: "Read-modify-write in a SERIALIZABLE transaction; a victim of a deadlock retries.",
		Claim:   Claim{OneReplica: Correct, TwoReplicas: Correct, Restocked: Correct, Exclusive: true, HolderCrash: "safe: the server rolls back", HolderPause: blocksMeanwhile, ClientRetry: deductsAgain},
		Stores:  []Store{MySQL},
		New:     newSerializable,
	},
	{
		Name:       ledgerName,
		Summary:    "One transaction: the order's row in the ledger, the conditional UPDATE, the answer. Each key sells once.",
		Claim:      Claim{OneReplica: Correct, TwoReplicas: Correct, Restocked: Correct, Exclusive: true, HolderCrash: "safe: the server rolls back", HolderPause: blocksMeanwhile, ClientRetry: repliesAgain},
		Stores:     []Store{MySQL},
		New:        newLedger,
		Idempotent: true,
	},
	{
		Name:    "slots",
		Summary: "The stock is split over 16 rows: a conditional UPDATE of one of them, the next where that has too little, all together in the tail.",
		Claim:   Claim{OneReplica: Correct, TwoReplicas: Correct, Restocked: Correct, HolderCrash: "safe: the server rolls back", HolderPause: "safe: in the tail, blocks the goods meanwhile", ClientRetry: deductsAgain},
		Stores:  []Store{Slots},
		New:     newSlots,
		Untold:  true,
	},
	{
		Name:    "batch",
		Summary: "Requests that wait in a replica while a commit is under way share the next: group commit.",
		Claim:   Claim{OneReplica: Correct, TwoReplicas: Correct, Restocked: Correct, Exclusive: true, HolderCrash: "safe", HolderPause: "safe", ClientRetry: deductsAgain},
		Stores:  []Store{MySQL},
		New:     newBatch,
	},
	{
		Name:       batchLedgerName,
		Summary:    "As batch, with each order's row of the ledger in the same transaction. Each key sells once.",
		Claim:      Claim{OneReplica: Correct, TwoReplicas: Correct, Restocked: Correct, Exclusive: true, HolderCrash: "safe: the server rolls back", HolderPause: blocksMeanwhile, ClientRetry: repliesAgain},
		Stores:     []Store{MySQL},
		New:        newBatchLedger,
		Idempotent: true,
	},
	{
		Name:    "redis-none",
		Summary: "GET the stock, then SET it to what was read less the count.",
		Claim:   Claim{OneReplica: LosesUpdates, TwoReplicas: LosesUpdates, Restocked: LosesUpdates, HolderCrash: "safe", HolderPause: losesUpdate, ClientRetry: deductsAgain},
		Control: true,
		Stores:  []Store{Redis},
		Lock:    func(Deps) (locks.Locker, error) { return locks.None{}, nil },
	},
	{
		Name:    "redis-watch",
		Summary: "WATCH, GET, MULTI, SET, EXEC, else back off and retry. As durable as Redis is.",
		Claim:   Claim{OneReplica: Correct, TwoReplicas: Correct, Restocked: Correct, Exclusive: true, HolderCrash: lostWithRedis, HolderPause: refusedByFence, ClientRetry: deductsAgain},
		Stores:  []Store{Redis},
		New:     newRedisWatch,
	},
	{
		Name:    "redis-script",
		Summary: "Check and DECRBY in one Lua script, for all that wait in a replica at once. As durable as Redis is.",
		Claim:   Claim{OneReplica: Correct, TwoReplicas: Correct, Restocked: Correct, HolderCrash: lostWithRedis, HolderPause: "safe", ClientRetry: deductsAgain},
		Stores:  []Store{Redis},
		New:     newRedisScript,
	},
	{
		Name:    "redis-stream",
		Summary: "One script checks, deducts and puts the sale into a stream; a consumer group writes it to MySQL, exactly once.",
		Claim:   Claim{OneReplica: Correct, TwoReplicas: Correct, Restocked: Correct, HolderCrash: "safe: another replica writes to MySQL", HolderPause: "safe", ClientRetry: deductsAgain},
		Stores:  []Store{Redis},
		Needs:   []Need{NeedMySQL},
		New:     newRedisStream,

		WriteBehind: true,
	},
	{
		Name:    "lock-redis-setnx",
		Summary: "SET NX, polled, and DEL: a lock without an end.",
		Claim:   Claim{OneReplica: Correct, TwoReplicas: Correct, Restocked: LosesUpdates, Exclusive: true, HolderCrash: "blocked for ever", HolderPause: blocksMeanwhile, ClientRetry: deductsAgain},
		Stores:  []Store{MySQL, Redis},
		Needs:   []Need{NeedRedis},
		Lock:    func(d Deps) (locks.Locker, error) { return locks.NewRedisSetNX(d.Redis, d.lease()), nil },
	},
	{
		Name:    "lock-redis-expiry",
		Summary: "SET NX PX, polled, and DEL: a lease that whoever is late ends for the next holder.",
		Claim:   Claim{OneReplica: Correct, TwoReplicas: Correct, Restocked: LosesUpdates, Exclusive: true, HolderCrash: blockedForLease, HolderPause: losesUpdate, ClientRetry: deductsAgain},
		Stores:  []Store{MySQL, Redis},
		Needs:   []Need{NeedRedis},
		Lock:    func(d Deps) (locks.Locker, error) { return locks.NewRedisExpiry(d.Redis, d.lease()), nil },
	},
	{
		Name:    "lock-redis-owner",
		Summary: "SET NX PX with a random owner, polled; GET, to see whose it is, and DEL.",
		Claim:   Claim{OneReplica: Correct, TwoReplicas: Correct, Restocked: LosesUpdates, Exclusive: true, HolderCrash: blockedForLease, HolderPause: losesUpdate, ClientRetry: deductsAgain},
		Stores:  []Store{MySQL, Redis},
		Needs:   []Need{NeedRedis},
		Lock:    func(d Deps) (locks.Locker, error) { return locks.NewRedisOwner(d.Redis, d.lease()), nil },
	},
	{
		Name:    "lock-redis-lua",
		Summary: "SET NX PX with a random owner, polled, released by a script that checks the owner.",
		Claim:   Claim{OneReplica: Correct, TwoReplicas: Correct, Restocked: LosesUpdates, Exclusive: true, HolderCrash: blockedForLease, HolderPause: losesUpdate, ClientRetry: deductsAgain},
		Stores:  []Store{MySQL, Redis},
		Needs:   []Need{NeedRedis},
		Lock:    func(d Deps) (locks.Locker, error) { return locks.NewRedisLua(d.Redis, d.lease()), nil },
	},
	{
		Name:    "lock-redis-reentrant",
		Summary: "A hash of the owner and how often it holds the lock: a holder may lock again.",
		Claim:   Claim{OneReplica: Correct, TwoReplicas: Correct, Restocked: LosesUpdates, Exclusive: true, HolderCrash: blockedForLease, HolderPause: losesUpdate, ClientRetry: deductsAgain},
		Stores:  []Store{MySQL, Redis},
		Needs:   []Need{NeedRedis},
		Lock:    func(d Deps) (locks.Locker, error) { return locks.NewRedisReentrant(d.Redis, d.lease()), nil },
	},
	{
		Name:    "lock-redis-watchdog",
		Summary: "As lock-redis-lua, and renewed in the background while it is held.",
		Claim:   Claim{OneReplica: Correct, TwoReplicas: Correct, Restocked: LosesUpdates, Exclusive: true, HolderCrash: blockedForLease, HolderPause: losesUpdate, ClientRetry: deductsAgain},
		Stores:  []Store{MySQL, Redis},
		Needs:   []Need{NeedRedis},
		Lock:    func(d Deps) (locks.Locker, error) { return locks.NewRedisWatchdog(d.Redis, d.lease()), nil },
	},
	{
		Name:    "lock-redis-pubsub",
		Summary: "As lock-redis-watchdog, and a release is published to all that wait.",
		Claim:   Claim{OneReplica: Correct, TwoReplicas: Correct, Restocked: LosesUpdates, Exclusive: true, HolderCrash: blockedForLease, HolderPause: losesUpdate, ClientRetry: deductsAgain},
		Stores:  []Store{MySQL, Redis},
		Needs:   []Need{NeedRedis},
		Lock:    func(d Deps) (locks.Locker, error) { return locks.NewRedisPubSub(d.Redis, d.lease()), nil },
	},
	{
		Name:    "lock-redis-fair",
		Summary: "As lock-redis-pubsub, in the order of arrival; waiters that died are passed over.",
		Claim:   Claim{OneReplica: Correct, TwoReplicas: Correct, Restocked: LosesUpdates, Exclusive: true, HolderCrash: blockedForLease, HolderPause: losesUpdate, ClientRetry: deductsAgain},
		Stores:  []Store{MySQL, Redis},
		Needs:   []Need{NeedRedis},
		Lock:    func(d Deps) (locks.Locker, error) { return locks.NewRedisFair(d.Redis, d.lease()), nil },
	},
	{
		Name:    "lock-redis-fenced",
		Summary: "As lock-redis-watchdog, with a token for every grant, by which the store refuses a late holder.",
		Claim:   Claim{OneReplica: Correct, TwoReplicas: Correct, Restocked: Correct, Exclusive: true, HolderCrash: blockedForLease, HolderPause: refusedByFence, ClientRetry: deductsAgain},
		Stores:  []Store{MySQL, Redis},
		Needs:   []Need{NeedRedis},
		Lock:    func(d Deps) (locks.Locker, error) { return locks.NewRedisFenced(d.Redis, d.lease()), nil },
		Fenced:  true,
	},
	{
		Name:    "lock-redis-queue",
		Summary: "Processes queue in Redis, callers in their process; the token fences the store.",
		Claim:   Claim{OneReplica: Correct, TwoReplicas: Correct, Restocked: Correct, Exclusive: true, HolderCrash: blockedForLease, HolderPause: refusedByFence, ClientRetry: deductsAgain},
		Stores:  []Store{MySQL, Redis},
		Needs:   []Need{NeedRedis},
		Lock:    func(d Deps) (locks.Locker, error) { return locks.NewRedisQueue(d.Redis, d.lease()), nil },
		Fenced:  true,
	},
	{
		Name:    "lock-redlock",
		Summary: "Redlock by go-redsync: a majority of independent Redis masters grants the lock.",
		Claim:   Claim{OneReplica: Correct, TwoReplicas: Correct, Restocked: LosesUpdates, Exclusive: true, HolderCrash: blockedForLease, HolderPause: losesUpdate, ClientRetry: deductsAgain},
		Stores:  []Store{MySQL, Redis},
		Needs:   []Need{NeedRedlock},
		Lock:    func(d Deps) (locks.Locker, error) { return locks.NewRedlock(d.Redlock, d.lease()) },
	},
	{
		Name:    "lock-mysql-getlock",
		Summary: "GET_LOCK of MySQL, on a connection that is kept while it is held.",
		Claim:   Claim{OneReplica: Correct, TwoReplicas: Correct, Restocked: LosesUpdates, Exclusive: true, HolderCrash: "safe: the server frees the lock at once", HolderPause: blocksMeanwhile, ClientRetry: deductsAgain},
		Stores:  []Store{MySQL, Redis},
		Needs:   []Need{NeedMySQL},
		Lock:    func(d Deps) (locks.Locker, error) { return locks.NewMySQLGetLock(d.MySQLLocks, d.lease()), nil },
	},
	{
		Name:    "lock-etcd",
		Summary: "A key in etcd that lives by a session: the oldest holds, and its revision fences the store.",
		Claim:   Claim{OneReplica: Correct, TwoReplicas: Correct, Restocked: Correct, Exclusive: true, HolderCrash: blockedForLease, HolderPause: refusedByFence, ClientRetry: deductsAgain},
		Stores:  []Store{MySQL, Redis},
		Needs:   []Need{NeedEtcd},
		Lock:    func(d Deps) (locks.Locker, error) { return locks.NewEtcd(d.Etcd, d.lease()), nil },
		Fenced:  true,
	},
	{
		Name:    "lock-zookeeper",
		Summary: "An ephemeral, numbered node in ZooKeeper: the first holds, and its zxid fences the store.",
		Claim:   Claim{OneReplica: Correct, TwoReplicas: Correct, Restocked: Correct, Exclusive: true, HolderCrash: blockedForLease, HolderPause: refusedByFence, ClientRetry: deductsAgain},
		Stores:  []Store{MySQL, Redis},
		Needs:   []Need{NeedZooKeeper},
		Lock:    func(d Deps) (locks.Locker, error) { return locks.NewZooKeeper(d.ZooKeeper, "/stock", d.lease()), nil },
		Fenced:  true,
	},
	{
		Name:    "lock-multi",
		Summary: "The locks of lock-redis-watchdog and of lock-mysql-getlock, both or none: how to move from one to the other.",
		Claim:   Claim{OneReplica: Correct, TwoReplicas: Correct, Restocked: LosesUpdates, Exclusive: true, HolderCrash: blockedForLease, HolderPause: blocksMeanwhile, ClientRetry: deductsAgain},
		Stores:  []Store{MySQL, Redis},
		Needs:   []Need{NeedRedis, NeedMySQL},
		Lock: func(d Deps) (locks.Locker, error) {
			return locks.Multi{
				standIn{"lock-redis-watchdog", locks.NewRedisWatchdog(d.Redis, d.lease())},
				standIn{"lock-mysql-getlock", locks.NewMySQLGetLock(d.MySQLLocks, d.lease())},
			}, nil
		},
	},
}

// What many rows say of faults.
const (
	losesUpdate     = "loses an update"
	deductsAgain    = "deducts again"
	repliesAgain    = "with an idempotency key: the first answer again"
	blockedForLease = "safe: blocked until the lease ends"
	blocksMeanwhile = "safe: blocks the goods meanwhile"
	lostWithRedis   = "safe; if Redis dies, what its AOF has not flushed is sold again"
	refusedByFence  = "safe: its write is refused"
)

func (d Deps) lease() locks.Options { return locks.Options{Lease: d.Lease, Poll: d.Poll} }

// maxIssuer is the room for the issuer of a token in MySQL: characters of a strategy's name.
const maxIssuer = 32

// Validate finds the row of a catalogue that nobody could use: one without a name, a summary, a claim, a store or a New,
// or with the name of another; and one that says of a lock's fence what it is not, or has too long a name for a fence.
func Validate(catalogue []Strategy) error {
	var errs []error
	seen := map[string]bool{}
	for i, s := range catalogue {
		claim := s.Claim
		switch {
		case s.Name == "":
			errs = append(errs, fmt.Errorf("row %d has no name", i))
		case seen[s.Name]:
			errs = append(errs, fmt.Errorf("%s: listed twice", s.Name))
		case s.Summary == "", len(s.Stores) == 0, (s.New == nil) == (s.Lock == nil):
			errs = append(errs, fmt.Errorf("%s: has no summary, no store, or not one of New and Lock", s.Name))
		case slices.Contains([]string{string(claim.OneReplica), string(claim.TwoReplicas), string(claim.Restocked), claim.HolderCrash, claim.HolderPause, claim.ClientRetry}, ""):
			errs = append(errs, fmt.Errorf("%s: its claim is incomplete", s.Name))
		case s.Lock != nil && s.Fenced != (claim.HolderPause == refusedByFence), s.Fenced && s.Lock == nil:
			errs = append(errs, fmt.Errorf("%s: a lock refuses a late holder if it is fenced, and only then", s.Name))
		case s.Lock != nil && s.Fenced != (claim.Restocked == Correct):
			errs = append(errs, fmt.Errorf("%s: a lock notices a restock if it is fenced, and only then", s.Name))
		case s.Lock != nil && (s.Untold || slices.Contains(s.Stores, Slots)):
			errs = append(errs, fmt.Errorf("%s: a lock is around one number, which is what remains: not around slots", s.Name))
		case s.Fenced && len(s.Name) > maxIssuer:
			errs = append(errs, fmt.Errorf("%s: the name of a fenced strategy has at most %d characters", s.Name, maxIssuer))
		}
		if s.Idempotent != (claim.ClientRetry == repliesAgain) {
			errs = append(errs, fmt.Errorf("%s: a client's retry is answered as before if the strategy is idempotent, and only then", s.Name))
		}
		seen[s.Name] = true
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("catalogue: %w", err)
	}
	return nil
}
