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
	deductFunc  func(context.Context, stock.Request) (stock.Receipt, error)
	orderFunc   func(context.Context, stock.OrderRequest) (stock.OrderReceipt, error)
	endFunc     func(context.Context, stock.ReservationID) (stock.Reservation, error)
	lockFunc    func(ctx context.Context, key string) (*locks.Lease, error)
	executeFunc func(ctx context.Context, statement string, args []driver.NamedValue) (driver.Result, error)
	queryFunc   func(ctx context.Context, statement string, args []driver.NamedValue) (driver.Rows, error)
)

// plan is what a mutant does differently. A function that is nil leaves its step alone.
type plan struct {
	replica string       // name
	strikes atomic.Int64 // how often the change was applied

	// In the strategy.
	deps    func(*stock.Deps)
	deduct  func(deductFunc) deductFunc
	order   func(orderFunc) orderFunc
	cancel  func(stock.Reserver) endFunc
	confirm func(stock.Reserver) endFunc
	lock    func(lockFunc) lockFunc

	// On the way to MySQL, for the whole process.
	execute func(executeFunc) executeFunc
	query   func(queryFunc) queryFunc
	begin   func(driver.TxOptions) driver.TxOptions
	commit  func(driver.Tx) error

	// On the way to Redis, for the whole process.
	script  func(lua string) string
	command func(redis.ProcessHook) redis.ProcessHook
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
			return &locker{closer{inner}, p.lock(inner.Lock)}, nil
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
	d := deducter{closer{inner}, keeper, inner.Deduct}
	if p.deduct != nil {
		d.deduct = p.deduct(d.deduct)
	}
	if holds, takesReservations := inner.(stock.Reserver); takesReservations {
		r := reserver{d, holds, holds.Cancel, holds.Confirm}
		if p.cancel != nil {
			r.cancel = p.cancel(holds)
		}
		if p.confirm != nil {
			r.confirm = p.confirm(holds)
		}
		return r
	}
	whole, takesOrders := inner.(stock.Orderer)
	if !takesOrders {
		return d
	}
	o := orderer{d, whole.Order}
	if p.order != nil {
		o.order = p.order(o.order)
	}
	return o
}

type deducter struct {
	closer
	stock.Canceller // nil for a strategy that keeps no keys, which is never asked

	deduct deductFunc
}

func (d deducter) Deduct(ctx context.Context, req stock.Request) (stock.Receipt, error) {
	return d.deduct(ctx, req)
}

type orderer struct {
	deducter
	order orderFunc
}

func (o orderer) Order(ctx context.Context, req stock.OrderRequest) (stock.OrderReceipt, error) {
	return o.order(ctx, req)
}

// reserver is a strategy that takes reservations. None of them takes orders.
type reserver struct {
	deducter
	stock.Reserver
	cancel, confirm endFunc
}

func (r reserver) Cancel(ctx context.Context, id stock.ReservationID) (stock.Reservation, error) {
	return r.cancel(ctx, id)
}

func (r reserver) Confirm(ctx context.Context, id stock.ReservationID) (stock.Reservation, error) {
	return r.confirm(ctx, id)
}

type locker struct {
	closer
	lock lockFunc
}

func (l *locker) Lock(ctx context.Context, key string) (*locks.Lease, error) { return l.lock(ctx, key) }

// closer closes what works in the background.
type closer struct{ inner any }

func (c closer) Close() error {
	if inner, ok := c.inner.(io.Closer); ok {
		return inner.Close()
	}
	return nil
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
