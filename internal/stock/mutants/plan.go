package mutants

import (
	"context"
	"database/sql/driver"
	"io"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"stock/internal/locks"
	"stock/internal/stock"
)

// step is one that a mutant can take the place of.
type step[Q, R any] func(context.Context, Q) (R, error)

type (
	deductFunc = step[stock.Request, stock.Receipt]
	orderFunc  = step[stock.OrderRequest, stock.OrderReceipt]
	lockFunc   = step[string, *locks.Lease] // of the lock's key
	endFunc    = step[stock.ReservationID, stock.Reservation]
)

// around is what takes the place of a step. If it is nil, the step is taken.
type around[Q, R any] func(ctx context.Context, asked Q, next step[Q, R]) (R, error)

func (a around[Q, R]) run(ctx context.Context, asked Q, next step[Q, R]) (R, error) {
	if a == nil {
		return next(ctx, asked)
	}
	return a(ctx, asked, next)
}

// onNth takes the place of every n-th step.
func onNth[Q, R any](p *plan, n int64, instead around[Q, R]) around[Q, R] {
	strikes := p.every(n)
	return func(ctx context.Context, asked Q, next step[Q, R]) (R, error) {
		if strikes() {
			return instead(ctx, asked, next)
		}
		return next(ctx, asked)
	}
}

// plan is what a mutant does differently. A function that is nil leaves its step alone.
type plan struct {
	replica string       // name
	strikes atomic.Int64 // how often the change was applied

	reserver stock.Reserver // the strategy itself, if it takes reservations

	// In the strategy.
	deps            func(*stock.Deps)
	deduct          around[stock.Request, stock.Receipt]
	order           around[stock.OrderRequest, stock.OrderReceipt]
	cancel, confirm around[stock.ReservationID, stock.Reservation]
	lock            around[string, *locks.Lease]

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
		p.reserver = holds
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
	return d.plan.deduct.run(ctx, req, d.inner.Deduct)
}

type orderer struct {
	deducter
	whole stock.Orderer
}

func (o orderer) Order(ctx context.Context, req stock.OrderRequest) (stock.OrderReceipt, error) {
	return o.plan.order.run(ctx, req, o.whole.Order)
}

// reserver is a strategy that takes reservations. None of them takes orders.
type reserver struct {
	deducter
	stock.Reserver
}

func (r reserver) Cancel(ctx context.Context, id stock.ReservationID) (stock.Reservation, error) {
	return r.plan.cancel.run(ctx, id, r.Reserver.Cancel)
}

func (r reserver) Confirm(ctx context.Context, id stock.ReservationID) (stock.Reservation, error) {
	return r.plan.confirm.run(ctx, id, r.Reserver.Confirm)
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
