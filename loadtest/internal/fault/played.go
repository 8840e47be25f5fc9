package fault

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/redis/go-redis/v9"

	"stock/loadtest/internal/history"
	"stock/loadtest/internal/report"
)

// waitOnAnotherConnection asks for the Redis replica on another connection than the one that has set the lock: WAIT is
// about what was written before a connection's last command.
var waitOnAnotherConnection = Practice{
	Name:  "wait-on-another-connection",
	Claim: claim("is told of what that connection had seen, which was before the lock", report.Unsafe),
	Play: func(ctx context.Context, s *Stage) error {
		shop, err := s.openShop(ctx)
		if err != nil {
			return err
		}
		defer shop.close()
		asks := shop.redis.Conn()
		defer asks.Close()
		if replicas, err := asks.Wait(ctx, 1, patientTimeout).Result(); replicas == 0 {
			return cmp.Or(err, errors.New("the Redis replica is not in sync before the fault"))
		}
		s.cutReplication()
		a := s.ask("A", 1)
		if err := shop.lock(ctx, shop.redis, "A"); err != nil {
			return err
		}
		replicas, err := asks.Wait(ctx, 1, waitLimit).Result()
		if err != nil {
			return err
		}
		units, err := shop.read(ctx)
		if err != nil {
			return err
		}
		s.Stepf("A has set the lock, is told that %d Redis replicas have it, and has read %d", replicas, units)
		s.strike(replicaPromoted, s.redis.failOver)
		promoted := openRedis(s.redis.replica.Addr)
		defer promoted.Close()
		b := s.perform("B", 2, func() (int64, error) {
			if err := shop.lock(ctx, promoted, "B"); err != nil {
				return 0, err
			}
			units, err := shop.read(ctx)
			return units - 2, cmp.Or(err, shop.write(ctx, units-2))
		})
		s.Provef("A was inside when the master was killed, and on the promoted Redis replica, B was told: %s", b.Outcome)
		a.answer(units-1, shop.write(ctx, units-1))
		return nil
	},
}

// smallestNumber takes the node with the smallest number for the oldest.
var smallestNumber = Practice{
	Name:  "smallest-number",
	Claim: claim("takes the smallest number for the oldest", report.Unsafe),
	Play: func(ctx context.Context, s *Stage) error {
		queue := zkQueue{path: "/" + s.lockKey()}
		if err := s.zookeeper.create(queue.path); err != nil {
			return err
		}
		s.wrap(queue.path)
		shop, err := s.openShop(ctx)
		if err != nil {
			return err
		}
		defer shop.close()
		if queue.conn, err = s.zookeeper.connect(); err != nil {
			return err
		}
		defer queue.conn.Close()
		a := s.ask("A", 1)
		holder, err := queue.join()
		if err != nil {
			return err
		}
		units, err := shop.read(ctx)
		if err != nil {
			return err
		}
		s.Stepf("A holds the lock with the number %d, and has read %d", number(holder), units)
		s.untilSold("B", time.Now(), patience, func(client string) history.Op {
			return s.perform(client, 2, func() (int64, error) {
				name, err := queue.join()
				if err != nil {
					return 0, err
				}
				s.Provef("A is inside with the number %d, and B enters with the number %d", number(holder), number(name))
				units, err := shop.read(ctx)
				if err == nil {
					err = shop.write(ctx, units-2)
				}
				return units - 2, err
			})
		})
		a.answer(units-1, shop.write(ctx, units-1))
		return nil
	},
}

// create creates a node.
func (z *wrapped) create(node string) error {
	conn, err := z.connect()
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Create(node, nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll))
	return err
}

// zkQueue is a lock by the recipe of ZooKeeper's documentation.
type zkQueue struct {
	conn *zk.Conn
	path string
}

// join asks for the lock once, and returns the name of its node. It does not wait.
func (q zkQueue) join() (name string, err error) {
	node, err := q.conn.Create(q.path+"/"+rand.Text()+"-", nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
	if err != nil {
		return "", err
	}
	names, _, err := q.conn.Children(q.path)
	if err == nil && slices.MinFunc(names, byNumber) != path.Base(node) {
		err = errHeld
	}
	if err != nil {
		return "", errors.Join(err, q.conn.Delete(node, -1))
	}
	return path.Base(node), nil
}

// wrap brings the counter of a queue to its end, together with those of the other cells.
func (s *Stage) wrap(queue string) {
	z := s.zookeeper
	z.mu.Lock()
	z.queues = append(z.queues, queue)
	z.mu.Unlock()
	s.strike("ZooKeeper restarts, with a counter that has come to its end", func(ctx context.Context) error {
		if err := z.SetSequence(ctx, math.MaxInt32, z.queues...); err != nil {
			return err
		}
		return eventually(ctx, "the replicas are connected again", func() (bool, error) {
			return cmp.Or(s.Victim.Ready(ctx), s.Survivor.Ready(ctx)) == nil, nil
		})
	})
}

// playPool has users take a lock of MySQL on one connection, and read and write on a second one.
func playPool(ctx context.Context, s *Stage, ownPool bool) error {
	locks, err := s.openPool(ctx)
	if err != nil {
		return err
	}
	defer locks.Close()
	work := locks
	if ownPool {
		if work, err = s.openPool(ctx); err != nil {
			return err
		}
		defer work.Close()
	}
	user := poolUser{s: s, locks: locks, work: work, holds: make(chan struct{})}
	began := time.Now()
	patient, cancel := context.WithTimeout(ctx, poolPatience)
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() {
		s.perform("A", 1, func() (int64, error) { return user.buy(patient, user.awaitOthers) })
	})
	select {
	case <-user.holds:
	case <-patient.Done():
		return errors.New("client A did not get the lock")
	}
	for i := 1; i < poolUsers; i++ {
		all.Go(func() {
			s.perform(fmt.Sprintf("B%d", i), 1, func() (int64, error) { return user.buy(patient, nil) })
		})
	}
	all.Wait()
	if s.sold() > 0 {
		return nil
	}
	s.buyWithin("C", began, patience, func(client string) history.Op {
		return s.perform(client, 1, func() (int64, error) { return user.buy(ctx, nil) })
	})
	return nil
}

// openPool opens a pool of few connections.
func (s *Stage) openPool(ctx context.Context) (*sql.DB, error) {
	db, err := s.openMySQL(ctx)
	if err == nil {
		db.SetMaxOpenConns(poolConns)
		db.SetMaxIdleConns(poolConns)
	}
	return db, err
}

// sold counts the requests that were sold so far.
func (s *Stage) sold() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, op := range s.ops {
		if op.Outcome == history.Sold {
			n++
		}
	}
	return n
}

// poolUser buys with two connections.
type poolUser struct {
	s           *Stage
	locks, work *sql.DB
	holds       chan struct{} // closed when A holds the lock
}

// buy calls meanwhile, if it is not nil, when it has the lock.
func (u poolUser) buy(ctx context.Context, meanwhile func(context.Context) error) (remaining int64, err error) {
	lock, err := u.locks.Conn(ctx)
	if err != nil {
		return 0, err
	}
	defer lock.Close()
	var granted bool
	const query = "SELECT GET_LOCK(?, 10)"
	if err := lock.QueryRowContext(ctx, query, u.s.lockKey()).Scan(&granted); err != nil {
		return 0, err
	}
	if !granted {
		return 0, errHeld
	}
	defer lock.ExecContext(context.WithoutCancel(ctx), "DO RELEASE_ALL_LOCKS()") //nolint:errcheck // ends with conn
	if meanwhile != nil {
		if err := meanwhile(ctx); err != nil {
			return 0, err
		}
	}
	work, err := u.work.Conn(ctx)
	if err != nil {
		return 0, fmt.Errorf("there is no connection to work on: %w", err)
	}
	defer work.Close()
	var units int64
	if err := work.QueryRowContext(ctx, readSQL, u.s.Item).Scan(&units); err != nil {
		return 0, err
	}
	_, err = work.ExecContext(ctx, writeSQL, units-1, u.s.Item)
	return units - 1, err
}

// awaitOthers waits until others that ask for the lock have all the rest of its pool.
func (u poolUser) awaitOthers(ctx context.Context) error {
	close(u.holds)
	err := eventually(ctx, "the others have all connections", func() (bool, error) {
		return u.locks.Stats().InUse == poolConns, nil
	})
	if err == nil {
		u.s.Provef("all %d connections are in use: A holds the lock on one, and the others ask for it on the rest, %s",
			poolConns, u.describeWork())
	}
	return err
}

func (u poolUser) describeWork() string {
	if u.work == u.locks {
		return "while A needs one to read and write"
	}
	return "while A has a pool of its own to read and write"
}

var poolPractices = []Practice{
	{
		Name:  "lock-and-work-share-a-pool",
		Claim: claim("nobody buys until those who wait give up", report.Blocked),
		Play:  func(ctx context.Context, s *Stage) error { return playPool(ctx, s, false) },
	},
	{
		Name:  "lock-has-its-own-pool",
		Claim: claim("correct", report.Safe),
		Play:  func(ctx context.Context, s *Stage) error { return playPool(ctx, s, true) },
	},
}

const (
	poolConns    = 4 // of each pool
	poolUsers    = 8 // of one item, at the same replica
	poolPatience = 2 * time.Second
)

// shop is what practices with a lock share: a lock in Redis, and read-modify-write in MySQL, on connections of their
// own.
type shop struct {
	db    *sql.DB
	redis *redis.Client
	key   string // of the lock
	item  int64
}

// Read-modify-write in MySQL.
const (
	readSQL  = "SELECT stock FROM good_stock WHERE goods_id = ?"
	writeSQL = "UPDATE good_stock SET stock = ?, version = version + 1 WHERE goods_id = ?"
)

// errHeld is a refusal: somebody else holds the lock.
var errHeld = errors.New("the lock is held")

// openShop opens the shop of a practice. The caller closes it.
func (s *Stage) openShop(ctx context.Context) (*shop, error) {
	db, err := s.openMySQL(ctx)
	return &shop{db: db, redis: s.openRedis(), key: s.lockKey(), item: s.Item}, err
}

func (s *shop) close() {
	s.redis.Close()
	s.db.Close()
}

// lock asks for the lock once, on a server.
func (s *shop) lock(ctx context.Context, at *redis.Client, owner string) error {
	err := at.SetArgs(ctx, s.key, owner, redis.SetArgs{Mode: "NX", TTL: longLease}).Err()
	if errors.Is(err, redis.Nil) {
		return errHeld
	}
	return err
}

func (s *shop) read(ctx context.Context) (units int64, err error) {
	err = s.db.QueryRowContext(ctx, readSQL, s.item).Scan(&units)
	return units, err
}

func (s *shop) write(ctx context.Context, units int64) error {
	_, err := s.db.ExecContext(ctx, writeSQL, units, s.item)
	return err
}
