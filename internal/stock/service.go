package stock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/jmoiron/sqlx"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"

	"stock/internal/locks"
)

// Deps is what strategies are built from. Connections belong to the caller, who closes them.
type Deps struct {
	MySQL *sqlx.DB // nil where not configured
	// MySQLLocks is a second pool to the same server, for its named locks. A holder keeps a connection and needs another to
	// work with: from one pool, as many holders as it has connections would wait for each other for ever.
	MySQLLocks *sqlx.DB                // given where MySQL is
	Redis      redis.UniversalClient   // one server, a Sentinel group or a Cluster; nil where not configured
	Redlock    []redis.UniversalClient // independent masters; empty where not configured
	Etcd       *clientv3.Client        // nil where not configured
	ZooKeeper  *zk.Conn                // nil where not configured

	LockWait time.Duration // longest wait for a lock, or for a retry to win, before ErrBusy
	Lease    time.Duration // how long a lock outlives a holder that died
	Poll     time.Duration // pause between two tries of a polling lock

	Log *slog.Logger // nil for none
}

// Service deducts by the strategies of a catalogue that were built once, at start.
type Service struct {
	deps     Deps
	stores   map[Store]settableStore
	entries  map[string]*entry
	statuses []Status
	closers  []io.Closer // locks and deducters that work in the background

	connections *lockConnections // of deps.MySQLLocks: nil where there is no limit
}

type entry struct {
	strategy  Strategy
	deducters map[Store]Deducter
	refusals  map[Store]error
}

// Status is a strategy of the catalogue and whether it can be used here.
type Status struct {
	Strategy
	Unavailable map[Store]string // why, for each store on which it cannot be used
	Orders      []Store          // those on which it takes orders of several goods here
}

// NewService builds every strategy of the catalogue. A strategy that lacks a server is kept, with the reason.
func NewService(deps Deps, catalogue []Strategy) (*Service, error) {
	if err := Validate(catalogue); err != nil {
		return nil, err
	}
	if (deps.MySQL == nil) != (deps.MySQLLocks == nil) {
		return nil, errors.New("MySQL needs two pools: one for the work, and one for named locks")
	}
	if deps.Log == nil {
		deps.Log = slog.New(slog.DiscardHandler)
	}
	s := &Service{deps: deps, stores: map[Store]settableStore{}, entries: map[string]*entry{}, connections: deps.lockConnections()}
	for _, on := range Stores {
		if st := deps.store(on); st != nil {
			s.stores[on] = st
		}
	}
	for _, strategy := range catalogue {
		if err := s.add(strategy); err != nil {
			return nil, errors.Join(fmt.Errorf("strategy %s: %w", strategy.Name, err), s.Close())
		}
	}
	return s, nil
}

// add builds a strategy on each of its stores.
func (s *Service) add(strategy Strategy) error {
	e := &entry{strategy: strategy, deducters: map[Store]Deducter{}, refusals: map[Store]error{}}
	status := Status{Strategy: strategy, Unavailable: map[Store]string{}}
	build := s.builder(strategy)
	for _, on := range strategy.Stores {
		if missing := s.deps.missing(strategy.NeedsOn(on)); len(missing) > 0 {
			reason := "not configured: " + strings.Join(missing, ", ")
			e.refusals[on] = fmt.Errorf("strategy %s on store %s: %s: %w", strategy.Name, on, reason, ErrUnavailable)
			status.Unavailable[on] = reason
			continue
		}
		deducter, err := build(on)
		if err != nil {
			return fmt.Errorf("store %s: %w", on, err)
		}
		e.deducters[on] = deducter
		if _, ok := deducter.(Orderer); ok {
			status.Orders = append(status.Orders, on)
		}
	}
	s.entries[strategy.Name] = e
	s.statuses = append(s.statuses, status)
	return nil
}

// builder makes a strategy's deducters. Those of a lock share one: the queue of its waiters, or its session, is the same
// whatever store they work on.
func (s *Service) builder(strategy Strategy) func(Store) (Deducter, error) {
	if strategy.Lock == nil {
		return func(on Store) (Deducter, error) {
			deducter, err := strategy.New(s.deps, on)
			if closer, ok := deducter.(io.Closer); ok && err == nil {
				s.closers = append(s.closers, closer)
			}
			return deducter, err
		}
	}
	lock := sync.OnceValues(func() (locks.Locker, error) {
		locker, err := strategy.Lock(s.deps)
		if closer, ok := locker.(io.Closer); ok && err == nil {
			s.closers = append(s.closers, closer)
		}
		return locker, err
	})
	return func(on Store) (Deducter, error) {
		locker, err := lock()
		return strategy.guard(locker, s.deps, on, s.connections), err
	}
}

// Close ends what locks and deducters do in the background. Deductions must have ended before, and connections be closed after.
func (s *Service) Close() error {
	var errs []error
	for _, closer := range s.closers {
		errs = append(errs, closer.Close())
	}
	return errors.Join(errs...)
}

// Statuses lists the strategies in the order of the catalogue.
func (s *Service) Statuses() []Status { return s.statuses }

// Resolve finds the deducter of a strategy, and the strategy's default store where on is empty.
// Its errors are ErrUnknownStrategy, ErrUnsupportedStore and ErrUnavailable.
func (s *Service) Resolve(name string, on Store) (Deducter, Store, error) {
	e, ok := s.entries[name]
	if !ok {
		return nil, on, fmt.Errorf("%w %q", ErrUnknownStrategy, name)
	}
	if on == "" {
		on = e.strategy.Stores[0]
	}
	if deducter, ok := e.deducters[on]; ok {
		return deducter, on, nil
	}
	if err, ok := e.refusals[on]; ok {
		return nil, on, err
	}
	return nil, on, fmt.Errorf("%w: strategy %s works on %v, not on %q", ErrUnsupportedStore, name, e.strategy.Stores, on)
}

// ResolveOrders finds who takes the orders of a strategy. Its errors are those of Resolve, and ErrNoOrders.
func (s *Service) ResolveOrders(name string, on Store) (Orderer, Store, error) {
	deducter, on, err := s.Resolve(name, on)
	if err != nil {
		return nil, on, err
	}
	orderer, ok := deducter.(Orderer)
	if !ok {
		err = fmt.Errorf("strategy %s on store %s %w", name, on, ErrNoOrders)
	}
	return orderer, on, err
}

// Stock reads the units of one goods. Its errors are ErrUnknownGoods, ErrUnavailable and ErrUnsupportedStore.
func (s *Service) Stock(ctx context.Context, on Store, goodsID int64) (int64, error) {
	st, err := s.store(on)
	if err != nil {
		return 0, err
	}
	return st.read(ctx, goodsID)
}

// SetStock sets the units of one goods, new or known, in every configured store, and forgets who has claimed it there.
// Without any store it fails with ErrUnavailable.
//
// MySQL comes first, and Redis only after it: what is sold from the new stock in Redis finds the new stock in MySQL. What was
// sold from an older one is not deducted from it.
//
// Redis may have a later stock than that. Either another SetStock came last in both; or MySQL has lost data, or its replicas'
// clocks differ, and the stock is set again, beyond what Redis has.
func (s *Service) SetStock(ctx context.Context, goodsID, units int64) (err error) {
	if len(s.stores) == 0 {
		return fmt.Errorf("set the stock: no store is configured: %w", ErrUnavailable)
	}
	epoch := int64(0)
	for {
		issued := int64(0)
		for _, on := range []Store{MySQL, Slots, Redis} {
			if st, ok := s.stores[on]; ok {
				if epoch, err = st.set(ctx, goodsID, units, epoch); err != nil {
					return err
				}
				issued = cmp.Or(issued, epoch)
			}
		}
		if epoch == issued {
			return nil
		}
		last, err := mysqlStore{s.deps.MySQL}.epoch(ctx, goodsID)
		if err != nil || last >= epoch {
			return err
		}
	}
}

// Restock adds units, 1 to MaxStock, to a known goods in one store, MySQL where on is empty, and returns what is there right
// after. Its errors are ErrUnknownGoods, ErrOverstocked, ErrBusy, ErrUnavailable, ErrUnsupportedStore and ErrUnknown.
//
// It is one atomic step that takes no lock of a strategy. It is safe beside strategies whose write is such a step, too, or is refused where
// the goods has changed since they read it: all but the read-modify-write under a lock that is not fenced, which buries it.
func (s *Service) Restock(ctx context.Context, on Store, goodsID, units int64) (int64, error) {
	st, err := s.store(on)
	if err != nil {
		return 0, err
	}
	return st.restock(ctx, goodsID, units)
}

// Check asks every configured server, all at once, whether it answers. The result has an entry for each, nil where it
// does, and ErrBusy where it was not asked because all connections to it are in use.
func (s *Service) Check(ctx context.Context) map[Need]error {
	pings := map[Need]func() error{}
	if s.deps.MySQL != nil {
		pings[NeedMySQL] = func() error { return s.pingMySQL(ctx) }
	}
	if s.deps.Redis != nil {
		pings[NeedRedis] = func() error { return pingRedis(ctx, s.deps.Redis) }
	}
	if len(s.deps.Redlock) > 0 {
		pings[NeedRedlock] = func() error { return quorum(ctx, s.deps.Redlock) }
	}
	if s.deps.Etcd != nil {
		pings[NeedEtcd] = func() error { return pingEtcd(ctx, s.deps.Etcd) }
	}
	if s.deps.ZooKeeper != nil {
		pings[NeedZooKeeper] = func() error { return pingZooKeeper(ctx, s.deps.ZooKeeper) }
	}
	var (
		mu     sync.Mutex
		wg     sync.WaitGroup
		checks = map[Need]error{}
	)
	for need, ping := range pings {
		wg.Go(func() {
			err := ping()
			mu.Lock()
			defer mu.Unlock()
			checks[need] = err
		})
	}
	wg.Wait()
	return checks
}

func (s *Service) pingMySQL(ctx context.Context) error {
	err := s.deps.MySQL.PingContext(ctx)
	if stats := s.deps.MySQL.Stats(); errors.Is(err, context.DeadlineExceeded) && stats.InUse == stats.MaxOpenConnections {
		return fmt.Errorf("%w: all %d connections are in use: %w", ErrBusy, stats.InUse, err)
	}
	return err
}

func (s *Service) store(on Store) (settableStore, error) {
	if on == "" {
		on = Stores[0]
	}
	if st, ok := s.stores[on]; ok {
		return st, nil
	}
	if slices.Contains(Stores, on) {
		return nil, fmt.Errorf("store %s: not configured: %w", on, ErrUnavailable)
	}
	return nil, fmt.Errorf("%w %q: there are %v", ErrUnsupportedStore, on, Stores)
}

// NeedsOn lists the servers that the strategy needs when it works on a store.
func (s Strategy) NeedsOn(on Store) []Need {
	needs := slices.Clone(s.Needs)
	if own := on.need(); on != NoStore && !slices.Contains(needs, own) {
		needs = append(needs, own)
	}
	return needs
}

func (d Deps) missing(needs []Need) (missing []string) {
	for _, need := range needs {
		have := false
		switch need {
		case NeedMySQL:
			have = d.MySQL != nil
		case NeedRedis:
			have = d.Redis != nil
		case NeedRedlock:
			have = len(d.Redlock) > 0
		case NeedEtcd:
			have = d.Etcd != nil
		case NeedZooKeeper:
			have = d.ZooKeeper != nil
		}
		if !have {
			missing = append(missing, string(need))
		}
	}
	return missing
}

// pingRedis asks every master: a part of a Cluster that is down keeps its goods from being sold.
func pingRedis(ctx context.Context, client redis.UniversalClient) error {
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		return client.Ping(ctx).Err()
	}
	return cluster.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error { return master.Ping(ctx).Err() })
}

// pingEtcd reads a key that need not exist: a read is answered only where the cluster has a leader.
func pingEtcd(ctx context.Context, client *clientv3.Client) error {
	_, err := client.Get(ctx, "health")
	return err
}

// pingZooKeeper reads the root, which every server has. The client knows no contexts; what is asked without a session
// would wait for one.
func pingZooKeeper(ctx context.Context, conn *zk.Conn) error {
	if state := conn.State(); state != zk.StateHasSession {
		return fmt.Errorf("no session: %v", state)
	}
	answer := make(chan error, 1)
	go func() {
		_, _, err := conn.Exists("/")
		answer <- err
	}()
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// quorum says whether a majority of independent masters answers.
func quorum(ctx context.Context, masters []redis.UniversalClient) error {
	errs := make([]error, len(masters))
	var wg sync.WaitGroup
	for i, master := range masters {
		wg.Go(func() { errs[i] = master.Ping(ctx).Err() })
	}
	wg.Wait()
	down := slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(down) > len(masters)/2 {
		return fmt.Errorf("%d of %d masters do not answer: %w", len(down), len(masters), errors.Join(down...))
	}
	return nil
}
