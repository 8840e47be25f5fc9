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
	deduct  func(context.Context, stock.Request) (stock.Receipt, error)
	order   func(context.Context, stock.OrderRequest) (stock.OrderReceipt, error)
	lock    func(ctx context.Context, key string) (*locks.Lease, error)
	execute func(ctx context.Context, statement string, args []driver.NamedValue) (driver.Result, error)
	query   func(ctx context.Context, statement string, args []driver.NamedValue) (driver.Rows, error)
)

// changes are what a mutant does differently. A function that is nil leaves its step alone.
type changes struct {
	replica string // name
	strikes atomic.Int64

	// In the strategy.
	deps   func(*stock.Deps)
	deduct func(deduct) deduct
	order  func(order) order
	lock   func(lock) lock

	// On the way to MySQL, for the whole process.
	execute func(execute) execute
	query   func(query) query
	begin   func(driver.TxOptions) driver.TxOptions
	commit  func(driver.Tx) error

	// On the way to Redis, for the whole process.
	script  func(lua string) string
	command func(redis.ProcessHook) redis.ProcessHook
}

// every returns a function that is true for every n-th call.
func (c *changes) every(n int64) func() bool {
	var calls atomic.Int64
	return func() bool {
		if calls.Add(1)%n != 0 {
			return false
		}
		c.strikes.Add(1)
		return true
	}
}

// isSecond reports whether this is the second of several replicas.
func (c *changes) isSecond() bool { return c.replica != "" && c.replica[len(c.replica)-1] == '2' }

// both makes one change out of two that concern different steps.
func both(first, second change) change {
	return func(c *changes) {
		first(c)
		second(c)
	}
}

// strategy returns the strategy with the changes.
func (c *changes) strategy(original stock.Strategy) stock.Strategy {
	s := original
	if original.New != nil {
		s.New = func(d stock.Deps) stock.Deducter { return c.deducter(original.New(c.change(d))) }
	}
	if original.Lock != nil {
		s.Lock = func(d stock.Deps) (locks.Locker, error) {
			inner, err := original.Lock(c.change(d))
			if err != nil || c.lock == nil {
				return inner, err
			}
			return &locker{closer{inner}, c.lock(inner.Lock)}, nil
		}
	}
	return s
}

func (c *changes) change(d stock.Deps) stock.Deps {
	if c.deps != nil {
		c.deps(&d)
	}
	return d
}

func (c *changes) deducter(inner stock.Deducter) stock.Deducter {
	d := deducter{closer{inner}, inner.Deduct}
	if c.deduct != nil {
		d.deduct = c.deduct(d.deduct)
	}
	whole, takesOrders := inner.(stock.Orderer)
	if !takesOrders {
		return d
	}
	o := orderer{d, whole.Order}
	if c.order != nil {
		o.order = c.order(o.order)
	}
	return o
}

type deducter struct {
	closer
	deduct deduct
}

func (d deducter) Deduct(ctx context.Context, req stock.Request) (stock.Receipt, error) {
	return d.deduct(ctx, req)
}

type orderer struct {
	deducter
	order order
}

func (o orderer) Order(ctx context.Context, req stock.OrderRequest) (stock.OrderReceipt, error) {
	return o.order(ctx, req)
}

type locker struct {
	closer
	lock lock
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
