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
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/redis/go-redis/v9"

	"stock/loadtest/internal/history"
	"stock/loadtest/internal/report"
)

// The practices that no script can show: they are about a Redis replica, ZooKeeper and pools of connections.

// Read-modify-write in MySQL.
const (
	readSQL  = "SELECT stock FROM good_stock WHERE goods_id = ?"
	writeSQL = "UPDATE good_stock SET stock = ?, version = version + 1 WHERE goods_id = ?"
)

// errHeld is a refusal: somebody else holds the lock.
var errHeld = errors.New("the lock is held")

// readUnits reads the item's stock.
func (s *Stage) readUnits(db *sql.DB) (units int64, err error) {
	err = db.QueryRowContext(s.ctx, readSQL, s.Item).Scan(&units)
	return units, err
}

// writeUnits overwrites the item's stock, and returns it.
func (s *Stage) writeUnits(db *sql.DB, units int64) (int64, error) {
	_, err := db.ExecContext(s.ctx, writeSQL, units, s.Item)
	return units, err
}

// readAndWrite takes units in two steps.
func (s *Stage) readAndWrite(db *sql.DB, count int64) (remaining int64, err error) {
	units, err := s.readUnits(db)
	if err != nil {
		return 0, err
	}
	return s.writeUnits(db, units-count)
}

// waitOnAnotherConnection asks for the Redis replica on another connection than the one that has set the lock: WAIT is
// about what was written before a connection's last command.
var waitOnAnotherConnection = Practice{
	Name:  "wait-on-another-connection",
	Claim: claim("is told of what that connection had seen, which was before the lock", report.Unsafe),
	Play: func(s *Stage) {
		db, master := s.mysql(), s.openRedis()
		defer master.Close()
		asks := master.Conn()
		defer asks.Close()
		if replicas, err := asks.Wait(s.ctx, 1, patientTimeout).Result(); replicas == 0 {
			s.failf("the Redis replica is not in sync before the fault: %w", err)
		}
		s.cutReplication()
		a := s.ask("A", 1)
		s.check(s.setLock(master, "A"))
		replicas, err := asks.Wait(s.ctx, 1, waitLimit).Result()
		s.check(err)
		units, err := s.readUnits(db)
		s.check(err)
		s.Stepf("A has set the lock, is told that %d Redis replicas have it, and has read %d", replicas, units)
		s.strike(replicaPromoted, s.redis.failOver)
		promoted := openRedis(s.redis.replica.Addr)
		defer promoted.Close()
		b := s.perform("B", 2, func() (int64, error) {
			if err := s.setLock(promoted, "B"); err != nil {
				return 0, err
			}
			return s.readAndWrite(db, 2)
		})
		s.Provef("A was inside when the master was killed, and on the promoted Redis replica, B was told: %s", b.Outcome)
		a.answer(s.writeUnits(db, units-1))
	},
}

// setLock asks a server of Redis for the lock once.
func (s *Stage) setLock(at *redis.Client, owner string) error {
	err := at.SetArgs(s.ctx, s.lockKey(), owner, redis.SetArgs{Mode: "NX", TTL: longLease}).Err()
	if errors.Is(err, redis.Nil) {
		return errHeld
	}
	return err
}

// smallestNumber takes the node with the smallest number for the oldest.
var smallestNumber = Practice{
	Name:  "smallest-number",
	Claim: claim("takes the smallest number for the oldest", report.Unsafe),
	Play: func(s *Stage) {
		db, queue := s.mysql(), "/"+s.lockKey()
		before, err := s.zookeeper.connect()
		s.check(err)
		_, err = before.Create(queue, nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll))
		before.Close()
		s.check(err)
		s.wrap(queue)
		conn, err := s.zookeeper.connect()
		s.check(err)
		defer conn.Close()
		a := s.ask("A", 1)
		holder, err := join(conn, queue)
		s.check(err)
		units, err := s.readUnits(db)
		s.check(err)
		s.Stepf("A holds the lock with the number %d, and has read %d", number(holder), units)
		s.untilSold("B", time.Now(), patience, func(client string) history.Op {
			return s.perform(client, 2, func() (int64, error) {
				name, err := join(conn, queue)
				if err != nil {
					return 0, err
				}
				s.Provef("A is inside with the number %d, and B enters with the number %d", number(holder), number(name))
				return s.readAndWrite(db, 2)
			})
		})
		a.answer(s.writeUnits(db, units-1))
	},
}

// join asks once for a lock by the recipe of ZooKeeper's documentation, and returns the name of its node.
func join(conn *zk.Conn, queue string) (name string, err error) {
	node, err := conn.Create(queue+"/"+rand.Text()+"-", nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
	if err != nil {
		return "", err
	}
	names, _, err := conn.Children(queue)
	if err == nil && slices.MinFunc(names, byNumber) != path.Base(node) {
		err = errHeld
	}
	if err != nil {
		return "", errors.Join(err, conn.Delete(node, -1))
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

const (
	poolConns    = 4 // of each pool
	poolUsers    = 8 // of one item, at the same replica
	poolPatience = 2 * time.Second
)

var poolPractices = []Practice{
	{
		Name:  "lock-and-work-share-a-pool",
		Claim: claim("nobody buys until those who wait give up", report.Blocked),
		Play: func(s *Stage) {
			pool := s.openPool()
			s.buyFromPools(pool, pool, "while A needs one to read and write")
		},
	},
	{
		Name:  "lock-has-its-own-pool",
		Claim: claim("correct", report.Safe),
		Play: func(s *Stage) {
			s.buyFromPools(s.openPool(), s.openPool(), "while A has a pool of its own to read and write")
		},
	},
}

// openPool opens a pool of few connections.
func (s *Stage) openPool() *sql.DB {
	db := s.mysql()
	db.SetMaxOpenConns(poolConns)
	db.SetMaxIdleConns(poolConns)
	return db
}

// buyFromPools has users take a lock of MySQL on a connection of one pool, and read and write on one of another pool. A
// works when the others have all the rest of the first pool.
func (s *Stage) buyFromPools(locks, work *sql.DB, how string) {
	began, holds, sold := time.Now(), make(chan struct{}), false
	patient, cancel := context.WithTimeout(s.ctx, poolPatience)
	defer cancel()
	a := s.meanwhile(func() {
		op := s.perform("A", 1, func() (int64, error) {
			return s.buyFromPool(patient, locks, work, func() {
				close(holds)
				s.eventually("the others have all connections", func() bool { return locks.Stats().InUse == poolConns })
				s.Provef("all %d connections are in use: A holds the lock on one, and the others ask for it on the rest, %s",
					poolConns, how)
			})
		})
		sold = op.Outcome == history.Sold
	})
	s.await(holds)
	var others []func()
	for i := 1; i < poolUsers; i++ {
		others = append(others, s.meanwhile(func() {
			s.perform(fmt.Sprintf("B%d", i), 1, func() (int64, error) {
				return s.buyFromPool(patient, locks, work, func() {})
			})
		}))
	}
	for _, wait := range append(others, a) {
		wait()
	}
	if !sold { // the others sell only after A
		s.buyWithin("C", began, patience, func(client string) history.Op {
			return s.perform(client, 1, func() (int64, error) { return s.buyFromPool(s.ctx, locks, work, func() {}) })
		})
	}
}

// buyFromPool calls inside when it has the lock.
func (s *Stage) buyFromPool(ctx context.Context, locks, work *sql.DB, inside func()) (remaining int64, err error) {
	lock, err := locks.Conn(ctx)
	if err != nil {
		return 0, err
	}
	defer lock.Close()
	var granted bool
	if err := lock.QueryRowContext(ctx, "SELECT GET_LOCK(?, 10)", s.lockKey()).Scan(&granted); err != nil {
		return 0, err
	}
	if !granted {
		return 0, errHeld
	}
	defer lock.ExecContext(context.WithoutCancel(ctx), "DO RELEASE_ALL_LOCKS()") //nolint:errcheck // ends with conn
	inside()
	conn, err := work.Conn(ctx)
	if err != nil {
		return 0, fmt.Errorf("there is no connection to work on: %w", err)
	}
	defer conn.Close()
	var units int64
	if err := conn.QueryRowContext(ctx, readSQL, s.Item).Scan(&units); err != nil {
		return 0, err
	}
	_, err = conn.ExecContext(ctx, writeSQL, units-1, s.Item)
	return units - 1, err
}
