package mutants

import (
	"context"
	"database/sql/driver"
	"io"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"stock/internal/locks"
	"stock/internal/stock"
)

// The steps that a mutant can take the place of.
type (
	deductFunc func(context.Context, stock.Request) (stock.Receipt, error)
	orderFunc  func(context.Context, stock.OrderRequest) (stock.OrderReceipt, error)
	lockFunc   func(ctx context.Context, key string) (*locks.Lease, error)
)

// plan is what a mutant does differently. A function that is nil leaves its step alone.
type plan struct {
	replica string       // name
	strikes atomic.Int64 // how often the change was applied

	// In the strategy.
	deps    func(*stock.Deps)
	deduct  func(ctx context.Context, req stock.Request, next deductFunc) (stock.Receipt, error)
	order   func(ctx context.Context, req stock.OrderRequest, next orderFunc) (stock.OrderReceipt, error)
	cancel  func(ctx context.Context, id stock.ReservationID, inner stock.Reserver) (stock.Reservation, error)
	confirm func(ctx context.Context, id stock.ReservationID, inner stock.Reserver) (stock.Reservation, error)
	lock    func(ctx context.Context, key string, next lockFunc) (*locks.Lease, error)

	// On the way to MySQL, for the whole process.
	edit    func(*statement) // before it is sent; not its args in place, which database/sql may send again
	execute func(*statement) (driver.Result, error)
	row     func(*statement, []driver.Value) // that a query has read
	begin   func(driver.TxOptions) driver.TxOptions
	commit  func(driver.Tx) error

	// On the way to Redis, for the whole process.
	script  func(lua string) string
	command func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error
}

// every returns a function that is true for every n-th call in this replica, and counts these calls as strikes.
func (p *plan) every(n int64) func() bool {
	var calls atomic.Int64
	return func() bool {
		if calls.Add(1)%n != 0 {
			return false
		}
		p.strikes.Add(1)
		return true
	}
}

// isSecond reports whether this is the second of several replicas.
func (p *plan) isSecond() bool { return p.replica != "" && p.replica[len(p.replica)-1] == '2' }

// both makes one change out of two that concern different steps.
func both(first, second change) change {
	return func(p *plan) {
		first(p)
		second(p)
	}
}

// strategy returns the strategy with the change.
func (p *plan) strategy(original stock.Strategy) stock.Strategy {
	s := original
	if original.New != nil {
		s.New = func(d stock.Deps) stock.Deducter { return p.deducter(original.New(p.edited(d))) }
	}
	if original.Lock != nil {
		s.Lock = func(d stock.Deps) (locks.Locker, error) {
			inner, err := original.Lock(p.edited(d))
			if err != nil || p.lock == nil {
				return inner, err
			}
			return &locker{closer{inner}, inner, p}, nil
		}
	}
	return s
}

func (p *plan) edited(d stock.Deps) stock.Deps {
	if p.deps != nil {
		p.deps(&d)
	}
	return d
}

func (p *plan) deducter(inner stock.Deducter) stock.Deducter {
	keeper, _ := inner.(stock.Canceller)
	d := deducter{closer{inner}, keeper, inner, p}
	if holds, takesReservations := inner.(stock.Reserver); takesReservations {
		return reserver{d, holds}
	}
	if whole, takesOrders := inner.(stock.Orderer); takesOrders {
		return orderer{d, whole}
	}
	return d
}

type deducter struct {
	closer
	stock.Canceller // nil for a strategy that keeps no keys, which is never asked

	inner stock.Deducter
	plan  *plan
}

func (d deducter) Deduct(ctx context.Context, req stock.Request) (stock.Receipt, error) {
	if d.plan.deduct == nil {
		return d.inner.Deduct(ctx, req)
	}
	return d.plan.deduct(ctx, req, d.inner.Deduct)
}

type orderer struct {
	deducter
	whole stock.Orderer
}

func (o orderer) Order(ctx context.Context, req stock.OrderRequest) (stock.OrderReceipt, error) {
	if o.plan.order == nil {
		return o.whole.Order(ctx, req)
	}
	return o.plan.order(ctx, req, o.whole.Order)
}

// reserver is a strategy that takes reservations. None of them takes orders.
type reserver struct {
	deducter
	stock.Reserver
}

func (r reserver) Cancel(ctx context.Context, id stock.ReservationID) (stock.Reservation, error) {
	if r.plan.cancel == nil {
		return r.Reserver.Cancel(ctx, id)
	}
	return r.plan.cancel(ctx, id, r.Reserver)
}

func (r reserver) Confirm(ctx context.Context, id stock.ReservationID) (stock.Reservation, error) {
	if r.plan.confirm == nil {
		return r.Reserver.Confirm(ctx, id)
	}
	return r.plan.confirm(ctx, id, r.Reserver)
}

type locker struct {
	closer
	inner locks.Locker
	plan  *plan
}

func (l *locker) Lock(ctx context.Context, key string) (*locks.Lease, error) {
	return l.plan.lock(ctx, key, l.inner.Lock)
}

// closer closes what works in the background.
type closer struct{ closes any }

func (c closer) Close() error {
	if inner, ok := c.closes.(io.Closer); ok {
		return inner.Close()
	}
	return nil
}

// mark marks the context of the requests whose statements a mutant changes, to tell them from all others.
type mark struct{}

func marked(ctx context.Context) context.Context { return context.WithValue(ctx, mark{}, true) }

func isMarked(ctx context.Context) bool { return ctx.Value(mark{}) != nil }

// markRequests is a deduct of a plan: it marks the contexts of deductions.
func markRequests(ctx context.Context, req stock.Request, next deductFunc) (stock.Receipt, error) {
	return next(marked(ctx), req)
}

// memory remembers the last value of each key.
type memory[K comparable, V any] struct {
	mu     sync.Mutex
	values map[K]V
}

// swap remembers a value and returns the one before it.
func (m *memory[K, V]) swap(key K, value V) (last V, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.values == nil {
		m.values = map[K]V{}
	}
	last, known = m.values[key]
	m.values[key] = value
	return last, known
}

// get returns the value that is remembered.
func (m *memory[K, V]) get(key K) (value V, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	value, known = m.values[key]
	return value, known
}

// flights are the keys of requests that are in flight in this replica.
type flights struct{ keys sync.Map }

// begin reports whether the key is new. If so, the caller must call end.
func (f *flights) begin(key string) bool {
	_, known := f.keys.LoadOrStore(key, nil)
	return !known
}

func (f *flights) end(key string) { f.keys.Delete(key) }
