package catalogue

import (
	"github.com/redis/go-redis/v9"

	"stock/internal/locks"
	"stock/internal/stock"
	"stock/internal/stock/guard"
)

// lockStrategies are read-modify-write under a lock. They differ only in the lock.
var lockStrategies = []stock.Strategy{
	redisLock("setnx", locks.NewRedisSetNX, but(blocking(leasedLock), func(c *stock.Claim) {
		c.HolderCrash = stock.CrashBlocksForever
	}), "SET NX, polled, and DEL: a lock that never ends by itself."),
	redisLock("expiry", locks.NewRedisExpiry, leasedLock,
		"SET NX PX, polled, and DEL: a lease. A late holder deletes the lock of the next one."),
	redisLock("owner", locks.NewRedisOwner, leasedLock,
		"SET NX PX with a random owner, polled; GET to check the owner, and DEL."),
	redisLock("lua", locks.NewRedisLua, leasedLock,
		"SET NX PX with a random owner, polled, released by a script that checks the owner."),
	redisLock("reentrant", locks.NewRedisReentrant, leasedLock,
		"As lock-redis-lua, re-entrant: Redis keeps a set with a random id for each hold, empty when the lock is free."),
	redisLock("watchdog", locks.NewRedisWatchdog, leasedLock,
		"As lock-redis-lua, and renewed in the background while it is held."),
	redisLock("pubsub", locks.NewRedisPubSub, leasedLock,
		"As lock-redis-watchdog, and each release is published to all that wait."),
	redisLock("rlock", locks.NewRedisRLock, leasedLock,
		"As lock-redis-pubsub, but of the waiters in a replica, only the first waits in Redis."),
	redisLock("fair", locks.NewRedisFair, leasedLock,
		"As lock-redis-pubsub, in the order of arrival; waiters that died are passed over."),
	lockingOrders(fenced(redisLock("fenced", locks.NewRedisFenced, fencedLock,
		"As lock-redis-watchdog, with a token for every grant, by which the store refuses a late holder."))),
	fenced(redisLock("queue", locks.NewRedisQueue, fencedLock,
		"Processes queue in Redis, and callers queue in their process; the token fences the store.")),
	lockService("lock-redis-wait", func(d stock.Deps) (locks.Locker, error) {
		return locks.NewRedisWait(d.Redis, lease(d))
	}, leasedLock, "As lock-redis-lua, granted only after a Redis replica has confirmed that it has the lock (WAIT).",
		stock.NeedRedis, stock.NeedRedisReplica),
	lockService("lock-redlock", func(d stock.Deps) (locks.Locker, error) {
		return locks.NewRedlock(d.Redlock, lease(d))
	}, leasedLock, "Redlock by go-redsync: a majority of independent Redis masters grants the lock.", stock.NeedRedlock),
	lockService("lock-redis-multi", func(d stock.Deps) (locks.Locker, error) {
		return locks.NewRedisMulti(d.Redlock, lease(d))
	}, leasedLock,
		"As lock-redis-watchdog on several independent Redis masters at once, all of which must grant the lock.",
		stock.NeedRedlock),
	lockService("lock-mysql-getlock", func(d stock.Deps) (locks.Locker, error) {
		return locks.NewMySQLGetLock(d.MySQLLocks, lease(d)), nil
	}, but(blocking(leasedLock), func(c *stock.Claim) { c.HolderCrash = stock.CrashUnlocks }),
		"GET_LOCK of MySQL, on a connection that is kept while the lock is held.", stock.NeedMySQL),
	lockService("lock-mysql-row", func(d stock.Deps) (locks.Locker, error) {
		return locks.NewMySQLRow(d.MySQLLocks, lease(d)), nil
	}, leasedLock,
		"A row in MySQL with a unique key, an owner and an expiry: inserted, polled, taken over once expired.",
		stock.NeedMySQL),
	fenced(lockService("lock-etcd", func(d stock.Deps) (locks.Locker, error) {
		return locks.NewEtcd(d.Etcd, lease(d)), nil
	}, fencedLock,
		"A key in etcd that lives as long as its session: the oldest has the lock; its revision fences the store.",
		stock.NeedEtcd)),
	fenced(lockService("lock-zookeeper", func(d stock.Deps) (locks.Locker, error) {
		return locks.NewZooKeeper(d.ZooKeeper, stock.ZooKeeperRoot, d.ZooKeeperACL, lease(d)), nil
	}, fencedLock,
		"An ephemeral sequential node in ZooKeeper: the first node has the lock, and its zxid fences the store.",
		stock.NeedZooKeeper)),
	lockService("lock-multi", func(d stock.Deps) (locks.Locker, error) {
		return locks.Multi{
			keysOf(d, "lock-redis-watchdog", locks.NewRedisWatchdog(d.Redis, lease(d))),
			keysOf(d, "lock-mysql-getlock", locks.NewMySQLGetLock(d.MySQLLocks, lease(d))),
		}, nil
	}, blocking(leasedLock),
		"The locks of lock-redis-watchdog and lock-mysql-getlock, both or neither: how to move from one to the other.",
		stock.NeedRedis, stock.NeedMySQL),
}

// blocking is the claim of a lock that its holder keeps while it pauses.
func blocking(c stock.Claim) stock.Claim {
	c.HolderPause = stock.LateBlocks
	return c
}

func keysOf(d stock.Deps, strategy string, locker locks.Locker) locks.Locker {
	return guard.KeysOf{Strategy: strategy, Prefix: d.KeyPrefix, Locker: locker}
}

func lease(d stock.Deps) locks.Options {
	return locks.Options{Lease: d.Lease, Poll: d.Poll, ChannelPrefix: d.KeyPrefix}
}

// lockService is the row of a lock in a service of its own, which can guard both stores.
func lockService(
	name string, newLock func(stock.Deps) (locks.Locker, error), claim stock.Claim, summary string, needs ...stock.Need,
) stock.Strategy {
	return needing(lock(name, newLock, claim, summary, stock.MySQL, stock.Redis), needs...)
}

// redisLock is the row of a step of the Redis lock ladder.
func redisLock[L locks.Locker](
	name string, newLock func(redis.UniversalClient, locks.Options) L, claim stock.Claim, summary string,
) stock.Strategy {
	return lockService("lock-redis-"+name, func(d stock.Deps) (locks.Locker, error) {
		return newLock(d.Redis, lease(d)), nil
	}, claim, summary, stock.NeedRedis)
}

// fenced is a row whose lock mints tokens that the store checks.
func fenced(s stock.Strategy) stock.Strategy {
	s.Fenced = true
	return s
}

// lockingOrders is a row whose lock also takes orders.
func lockingOrders(s stock.Strategy) stock.Strategy {
	s.LocksOrders = true
	return s
}
