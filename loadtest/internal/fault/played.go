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
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/redis/go-redis/v9"

	"stock/loadtest/internal/history"
	"stock/loadtest/internal/report"
)

// confirmedLock is a lock that is granted only if the Redis replica has it.
type confirmedLock struct {
	*shop
	sets *redis.Conn // sets the lock
	asks *redis.Conn // asks for the Redis replica: WAIT is about what was written before the connection's last command
}

// errUnconfirmed is a refusal: the Redis replica does not have the lock, which is given back.
var errUnconfirmed = errors.New("no Redis replica has the lock")

// openConfirmed opens a confirmedLock. The caller closes it.
func (s *Stage) openConfirmed(ctx context.Context, askAnother bool) (*confirmedLock, error) {
	shop, err := s.openShop(ctx)
	if err != nil {
		return nil, err
	}
	l := &confirmedLock{shop: shop, sets: shop.redis.Conn()}
	l.asks = l.sets
	if askAnother {
		l.asks = shop.redis.Conn()
	}
	for _, conn := range []*redis.Conn{l.sets, l.asks} {
		replicas, err := conn.Wait(ctx, 1, patientTimeout).Result()
		if err == nil && replicas == 0 {
			err = errors.New("the Redis replica is not in sync before the fault")
		}
		if err != nil {
			l.close()
			return nil, err
		}
	}
	if err := awaitAcks(ctx, shop.redis); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// awaitAcks waits until the Redis replica has confirmed all that the master has written so far. WAIT asks for what was
// written before its connection's last command, also by others.
func awaitAcks(ctx context.Context, master *redis.Client) error {
	written := int64(-1)
	return eventually(ctx, "the Redis replica confirms what was written", func() (bool, error) {
		info, err := master.InfoMap(ctx, "replication").Result()
		if err != nil {
			return false, err
		}
		replication := info["Replication"]
		if written < 0 {
			if written, err = strconv.ParseInt(replication["master_repl_offset"], 10, 64); err != nil {
				return false, err
			}
		}
		_, acked, _ := strings.Cut(replication["slave0"], ",offset=")
		acked, _, _ = strings.Cut(acked, ",")
		offset, err := strconv.ParseInt(acked, 10, 64)
		return offset >= written, err
	})
}

func (l *confirmedLock) close() {
	l.sets.Close()
	l.asks.Close()
	l.shop.close()
}

// lock asks for the lock once, and gives it back if no Redis replica has it.
func (l *confirmedLock) lock(ctx context.Context, owner string) error {
	err := l.sets.SetArgs(ctx, l.key, owner, redis.SetArgs{Mode: "NX", TTL: longLease}).Err()
	if errors.Is(err, redis.Nil) {
		return errHeld
	}
	if err != nil {
		return err
	}
	replicas, err := l.asks.Wait(ctx, 1, waitLimit).Result()
	if err == nil && replicas == 0 {
		err = errUnconfirmed
	}
	if err != nil {
		return errors.Join(err, l.unlock(ctx))
	}
	return nil
}

// playFailoverAfterWait has the master fail while A is inside, if A is granted the lock.
func (s *Stage) playFailoverAfterWait(ctx context.Context, cut, askAnother bool) error {
	shop, err := s.openConfirmed(ctx, askAnother)
	if err != nil {
		return err
	}
	defer shop.close()
	if cut {
		s.cutReplication()
	}
	a := s.ask("A", 1)
	if err := shop.lock(ctx, "A"); err != nil {
		a.answer(0, err)
		return s.waitInVain(ctx, shop, err)
	}
	units, err := shop.read(ctx)
	if err != nil {
		return err
	}
	s.Stepf("A is granted the lock, and has read %d", units)
	s.strike(replicaPromoted, s.redis.failOver)
	promoted := *shop.shop
	promoted.redis = openRedis(s.redis.replica.Addr)
	defer promoted.redis.Close()
	owner, err := promoted.holder(ctx)
	if err != nil {
		return err
	}
	s.Provef("A was inside when the master was killed; on the promoted Redis replica, the owner of the lock is %q", owner)
	first := s.perform("B", 2, func() (int64, error) { return promoted.sell(ctx, "B", 2) })
	a.answer(units-1, shop.write(ctx, units-1))
	if first.Outcome == history.Sold {
		return nil
	}
	if err := promoted.unlock(ctx); err != nil {
		return err
	}
	s.perform("B-again", 2, func() (int64, error) { return promoted.sell(ctx, "B", 2) })
	return nil
}

// waitInVain has B ask for the lock, after A was refused.
func (s *Stage) waitInVain(ctx context.Context, shop *confirmedLock, refusal error) error {
	if !errors.Is(refusal, errUnconfirmed) {
		return fmt.Errorf("the lock of client A: %w", refusal)
	}
	s.Provef("A has set the lock, and WAIT says that no Redis replica has it")
	refused := time.Now()
	s.buyWithin("B", refused, 2*waitLimit, func(client string) history.Op {
		return s.perform(client, 2, func() (int64, error) { return 0, shop.lock(ctx, client) })
	})
	return nil
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

var waitHealthyPractices = []Practice{{
	Name:  "set-then-wait",
	Claim: claim("is granted the lock when the Redis replica has it", report.Safe),
	Play:  func(ctx context.Context, s *Stage) error { return s.playFailoverAfterWait(ctx, false, false) },
}}

var waitCutPractices = []Practice{{
	Name:  "set-then-wait",
	Claim: claim("is not granted the lock without the Redis replica", report.Unavailable),
	Play:  func(ctx context.Context, s *Stage) error { return s.playFailoverAfterWait(ctx, true, false) },
}, {
	Name:  "wait-on-another-connection",
	Claim: claim("is told of what that connection had seen, which was before the lock", report.Unsafe),
	Play:  func(ctx context.Context, s *Stage) error { return s.playFailoverAfterWait(ctx, true, true) },
}}

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
	db, err := s.openMySQL(ctx, nil)
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
	db, err := s.openMySQL(ctx, nil)
	if err != nil {
		return nil, err
	}
	return &shop{
		db:    db,
		redis: s.openRedis(),
		key:   s.lockKey(),
		item:  s.Item,
	}, nil
}

func (s *shop) close() {
	s.redis.Close()
	s.db.Close()
}

// lock asks for the lock once.
func (s *shop) lock(ctx context.Context, owner string) error {
	err := s.redis.SetArgs(ctx, s.key, owner, redis.SetArgs{Mode: "NX", TTL: lease}).Err()
	if errors.Is(err, redis.Nil) {
		return errHeld
	}
	return err
}

// holder is the owner that holds the lock; empty if it is free.
func (s *shop) holder(ctx context.Context) (string, error) {
	owner, err := s.redis.Get(ctx, s.key).Result()
	if errors.Is(err, redis.Nil) {
		return "", nil
	}
	return owner, err
}

// unlock deletes the lock.
func (s *shop) unlock(ctx context.Context) error { return s.redis.Del(ctx, s.key).Err() }

func (s *shop) read(ctx context.Context) (units int64, err error) {
	err = s.db.QueryRowContext(ctx, readSQL, s.item).Scan(&units)
	return units, err
}

func (s *shop) write(ctx context.Context, units int64) error {
	_, err := s.db.ExecContext(ctx, writeSQL, units, s.item)
	return err
}

// sell deducts under the lock, and returns the units that remain.
func (s *shop) sell(ctx context.Context, owner string, count int64) (remaining int64, err error) {
	if err := s.lock(ctx, owner); err != nil {
		return 0, err
	}
	units, err := s.read(ctx)
	if err != nil {
		return 0, err
	}
	if err := s.write(ctx, units-count); err != nil {
		return 0, err
	}
	return units - count, s.unlock(ctx)
}
