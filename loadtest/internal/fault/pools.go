package fault

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"stock/internal/tcpproxy"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/scenario"
)

var poolScenarios = []Scenario{poolDeadlock}

const (
	poolConns    = 4 // of each pool
	poolUsers    = 8 // of one item, at the same replica
	poolPatience = 2 * time.Second
)

// poolDeadlock is the story of a holder that needs a connection while those who wait for it have them all.
var poolDeadlock = Scenario{
	Name: "pool-deadlock",
	Title: fmt.Sprintf("%d users buy an item at a replica with %d connections to MySQL, while one of them is inside.",
		poolUsers, poolConns),
	Applies: only("update", "for-update", "serializable", "ledger", "batch", "mutex-around-tx",
		"lock-mysql-getlock", "lock-redis-fenced", "lock-multi"),
	Claim: func(scenario.Strategy) Claim {
		return claim("those who wait leave connections for the holder", report.Safe)
	},
	Practices: []Practice{
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
	},
	Deploy: patient(fmt.Sprint("--mysql-conns=", poolConns), fmt.Sprint("--mysql-lock-conns=", poolConns),
		"--lock-wait=10s", "--lease="+patientTimeout.String()),
	Play: func(ctx context.Context, s *Stage) error {
		if err := s.setManyUnits(ctx); err != nil {
			return err
		}
		front, err := tcpproxy.Start(s.Victim.Address())
		if err != nil {
			return err
		}
		defer front.Close()
		// A paused request may use half of the connections. Two cells at the same replica would wait for each other.
		return s.InTurn(ctx, func() error { return s.buyAtOnce(ctx, front) })
	},
}

// buyAtOnce has all users but A ask while A is inside.
func (s *Stage) buyAtOnce(ctx context.Context, front *tcpproxy.Proxy) error {
	a, point, err := s.park(ctx, order{client: "A", at: s.Victim, timeout: patientTimeout})
	if err != nil {
		return err
	}
	var others []*pending
	for i := 1; i < poolUsers; i++ {
		others = append(others, s.start(ctx, order{
			client: fmt.Sprintf("B%d", i), through: "http://" + front.Addr(), timeout: patientTimeout,
		}))
	}
	err = eventually(ctx, "all requests have arrived", func() (bool, error) { return front.Count() >= len(others), nil })
	if err != nil {
		return err
	}
	if err := s.proveCrowded(ctx, point, len(others)); err != nil {
		return err
	}
	released := time.Now()
	if err := s.release(ctx, a); err != nil {
		return err
	}
	next := released.Add(patientTimeout) // the first sale of another one
	for _, p := range append(others, a) {
		if err := p.wait(); err != nil {
			return err
		}
		if p.op.Outcome != history.Sold {
			s.Stepf("%s was not sold anything: %s", p.request, p.op.Error)
			s.never = true
		} else if answered := answeredAt(p.op); p != a && answered.Before(next) {
			next = answered
		}
	}
	s.blocked = s.between(released, next)
	return nil
}

// waitsInMySQL lists the strategies whose requests each need a connection to MySQL to wait for A. Those of the others
// wait inside the replica, or in Redis.
var waitsInMySQL = []string{"update", "for-update", "serializable", "ledger"}

// proveCrowded proves that the others want what A has. If they wait in MySQL, each of them must have a connection or
// wait for one.
func (s *Stage) proveCrowded(ctx context.Context, point string, others int) error {
	var use poolUse
	err := eventually(ctx, "the others wait for A", func() (crowded bool, err error) {
		use, err = s.poolUse(ctx)
		return use.conns+use.waiting == others+1 || !slices.Contains(waitsInMySQL, s.Strategy.Name), err
	})
	if err != nil {
		return err
	}
	s.Provef("A is parked at %s, and %d more requests have reached the replica, of whose %d connections to MySQL %d are "+
		"in use; %d requests wait for one", point, others, poolConns, use.conns, use.waiting)
	return nil
}

// poolUse is how a replica uses its connections to MySQL, without those that hold locks.
type poolUse struct {
	conns   int // in use
	waiting int // requests that wait for a connection
}

// poolUse reads it from the victim's metrics.
func (s *Stage) poolUse(ctx context.Context) (use poolUse, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Victim.AdminURL+"/metrics", nil)
	if err != nil {
		return use, err
	}
	response, err := s.Service.Client.Do(request)
	if err != nil {
		return use, err
	}
	defer response.Body.Close()
	metrics, err := io.ReadAll(response.Body)
	if err != nil {
		return use, err
	}
	for name, value := range map[string]*int{
		`go_sql_in_use_connections{db_name="mysql"}`: &use.conns, "stock_mysql_share_waiting": &use.waiting,
	} {
		_, after, _ := strings.Cut(string(metrics), "\n"+name+" ")
		text, _, _ := strings.Cut(after, "\n")
		if *value, err = strconv.Atoi(text); err != nil {
			return use, fmt.Errorf("the metric %s: %w", name, err)
		}
	}
	return use, nil
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
	return s.buyWithin(ctx, "C", began, patience, func(client string) (history.Op, error) {
		return s.perform(client, 1, func() (int64, error) { return user.buy(ctx, nil) }), nil
	})
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
