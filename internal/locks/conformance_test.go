package locks_test

import (
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/internal/locks"
	"stock/internal/locks/lockstest"
	"stock/internal/must"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
)

// onOneRedis makes the Subject of a lock on one Redis from its guarantees.
func onOneRedis[L locks.Locker](
	create func(redis.UniversalClient, locks.Options) L, s lockstest.Subject,
) lockstest.Subject {
	return onMasters(1, func(_ testing.TB, masters []redis.UniversalClient, o locks.Options) locks.Locker {
		return create(masters[0], o)
	}, s)
}

func onMasters(masters int, create newOnRedis, s lockstest.Subject) lockstest.Subject {
	s.Shared, s.Own = sharedRedis(masters, create), ownRedis(masters, create)
	return s
}

// withReplica gives each Redis of the subject a Redis replica.
func withReplica(s lockstest.Subject) lockstest.Subject {
	sharedMaster, ownMaster := s.Shared, s.Own
	s.Shared = func(t testing.TB) lockstest.Deployment {
		shared.AddRedisReplica(t)
		return sharedMaster(t)
	}
	s.Own = func(t testing.TB) lockstest.Private {
		d := ownMaster(t)
		serverstest.StartRedis(t, servers.RedisOptions{ReplicaOf: d.Addresses()[0]})
		master := redis.NewClient(&redis.Options{Addr: d.Addresses()[0]})
		t.Cleanup(func() { master.Close() })
		// The replica first confirms a write up to a second after it has the data.
		serverstest.Eventually(t, "the Redis replica confirms writes", func() bool {
			return strings.Contains(master.Info(t.Context(), "replication").Val(), "state=online")
		})
		return d
	}
	return s
}

// missing has the guarantees that a lock does not give, and why.
type missing = map[lockstest.Guarantee]string

const noOwner = "without an owner nobody knows whose lock it is"

const notRenewed = "it is not renewed, so it does not notice"

var subjects = map[string]lockstest.Subject{
	"mutex": {
		Shared: func(testing.TB) lockstest.Deployment { return inProcess{new(locks.Mutex)} },
		Lacks:  missing{lockstest.Expiry: "it has no lease"},
	},
	"redis-setnx": onOneRedis(locks.NewRedisSetNX, lockstest.Subject{Lacks: missing{
		lockstest.Expiry:      "it has no lease",
		lockstest.Ownership:   "it has no owner",
		lockstest.TakesBack:   noOwner,
		lockstest.Released:    noOwner,
		lockstest.NoticesLoss: notRenewed,
		lockstest.Exclusive:   "it is held for ever after a lost reply",
	}}),
	"redis-expiry": onOneRedis(locks.NewRedisExpiry, lockstest.Subject{Lacks: missing{
		lockstest.Ownership:   "it has no owner",
		lockstest.TakesBack:   noOwner,
		lockstest.Released:    noOwner,
		lockstest.NoticesLoss: notRenewed,
		lockstest.Exclusive:   "a late holder deletes the next one's lock",
	}}),
	"redis-owner": onOneRedis(locks.NewRedisOwner, lockstest.Subject{Lacks: missing{
		lockstest.Released:    "between GET and DEL another client can be granted the lock",
		lockstest.NoticesLoss: notRenewed,
		lockstest.Exclusive:   "between GET and DEL another client can be granted the lock",
	}}),
	"redis-lua": onOneRedis(locks.NewRedisLua, lockstest.Subject{Lacks: missing{lockstest.NoticesLoss: notRenewed}}),
	"redis-reentrant": onOneRedis(locks.NewRedisReentrant, lockstest.Subject{
		Reentrant: true,
		Lacks:     missing{lockstest.NoticesLoss: notRenewed},
	}),
	"redis-watchdog": onOneRedis(locks.NewRedisWatchdog, lockstest.Subject{Renews: true}),
	"redis-pubsub":   onOneRedis(locks.NewRedisPubSub, lockstest.Subject{Renews: true}),
	"redis-rlock":    onOneRedis(locks.NewRedisRLock, lockstest.Subject{Renews: true}),
	"redis-fair":     onOneRedis(locks.NewRedisFair, lockstest.Subject{Renews: true}),
	"redis-fenced": onOneRedis(locks.NewRedisFenced, lockstest.Subject{
		Renews: true, Tokens: true, Leaves: []string{":token"},
	}),
	"redis-queue": onOneRedis(locks.NewRedisQueue, lockstest.Subject{
		Renews: true, Tokens: true, Leaves: []string{":memory"},
	}),
	"redis-multi": onMasters(3, newRedisMultiOn, lockstest.Subject{
		Lease:  time.Second, // several masters have to answer a renewal in time
		Renews: true,
	}),
	"redis-wait": withReplica(onMasters(1, newRedisWaitOn, lockstest.Subject{
		Lease: 2 * time.Second, // on a busy machine, a Redis replica may take a while to confirm
		Lacks: missing{lockstest.NoticesLoss: notRenewed},
	})),
	"redlock": onMasters(3, newRedlockOn, lockstest.Subject{
		Lease: time.Second, // a command to a master may take half of it
		Lacks: missing{
			lockstest.NoticesLoss:    notRenewed,
			lockstest.NoticesSilence: "it asks again as long as masters can be connected to",
		},
	}),
	"multi": onMasters(2, newMultiOn, lockstest.Subject{
		Lease:  time.Second, // the first lock must outlast the wait for the second
		Renews: true, Tokens: true, Leaves: []string{":token"},
	}),
	"etcd": {
		Shared: sharedEtcd, Own: ownEtcd, Lease: 2 * time.Second, Renews: true, Tokens: true,
		Lacks: missing{lockstest.NoticesLoss: "it learns of the end of its session, not of its key"},
	},
	"zookeeper": {
		Shared: sharedZooKeeper, Own: ownZooKeeper, Lease: time.Second, Renews: true, Tokens: true,
		Uncut: whyZooKeeperIsNotCut,
	},
	"mysql-row": {
		Shared: sharedMySQLRow,
		Own:    ownMySQLRow,
		Lacks: missing{
			lockstest.NoticesLoss:    notRenewed,
			lockstest.NoLateGrant:    "it waits for a late reply for a second",
			lockstest.NoticesSilence: "it waits for an answer as long as its caller does",
		},
	},
	"mysql-getlock": {
		Shared: sharedMySQL,
		Own:    ownMySQL,
		Lacks: missing{
			lockstest.Expiry:         "it has no lease: it ends with its connection",
			lockstest.Persistence:    "it belongs to its connection",
			lockstest.NoticesSilence: "the error is that a query took too long, as for a caller that gave up",
			lockstest.Exclusive: "its connection may end while the work goes on: see " +
				"TestAKilledConnectionFreesItsGetLockWhileTheWorkGoesOn",
		},
	},
}

func newRedlockOn(t testing.TB, masters []redis.UniversalClient, o locks.Options) locks.Locker {
	lock, err := locks.NewPatientRedlock(masters, o)
	must.Succeed(t, err)
	return lock
}

func newRedisMultiOn(t testing.TB, masters []redis.UniversalClient, o locks.Options) locks.Locker {
	lock, err := locks.NewRedisMulti(masters, o)
	must.Succeed(t, err)
	return lock
}

func newRedisWaitOn(t testing.TB, masters []redis.UniversalClient, o locks.Options) locks.Locker {
	return newRedisWait(t, masters[0], o)
}

// newMultiOn makes a Multi of two different locks, each on its own Redis.
func newMultiOn(_ testing.TB, masters []redis.UniversalClient, o locks.Options) locks.Locker {
	return locks.Multi{locks.NewRedisWatchdog(masters[0], o), locks.NewRedisFenced(masters[1], o)}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	for name, subject := range subjects {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lockstest.Run(t, subject)
		})
	}
}

func TestRedisLocksLeaveNoKeyForEver(t *testing.T) {
	t.Parallel()
	for name, subject := range subjects {
		if !strings.HasPrefix(name, "redis-") && name != "redlock" && name != "multi" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := subject.Shared(t).(onRedis) // databases of its own
			wantExpiry := func(when string) {
				for _, observer := range d.observers {
					for _, key := range observer.Keys(t.Context(), "*").Val() {
						switch ttl := observer.PTTL(t.Context(), key).Val(); {
						case ttl == -1:
							t.Errorf("%s: %s has no expiry", when, key)
						case strings.HasSuffix(key, ":token") && ttl < 23*time.Hour:
							t.Errorf("%s: %s expires in %v, want about a day, so that tokens still rise after the clock was set back",
								when, key, ttl)
						}
					}
				}
			}
			lock, other := newLock(t, d), newLock(t, d)
			holder := mustLock(t, lock, "lock")
			granted, failed := startLock(t.Context(), other, "lock")
			wantWait(t, t.Context(), lock, "lock")
			if name != "redis-setnx" {
				wantExpiry("while it is held")
			}
			mustUnlock(t, holder)
			mustUnlock(t, receive(t, granted, failed))
			wantExpiry("after it was released")
		})
	}
}

// newLock makes a lock, which is closed with the test.
func newLock(t testing.TB, d onRedis) locks.Locker {
	lock := d.New(t, d.Addresses(), locks.Options{})
	t.Cleanup(func() { _ = locks.Close(lock) })
	return lock
}

var seed = flag.Uint64("seed", 0, "seed of TestOneHolderAtATimeUnderFaults's random choices; 0 takes the current time")

func TestOneHolderAtATimeUnderFaults(t *testing.T) {
	t.Parallel()
	first := *seed
	if first == 0 {
		first = uint64(time.Now().UnixNano())
	}
	for name, subject := range subjects {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lockstest.Stress(t, subject, first)
		})
	}
}
