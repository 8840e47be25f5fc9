package catalogue

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"

	"stock/internal/locks"
	"stock/internal/stock"
	"stock/internal/stock/guard"
)

// Registry holds the strategies of a catalogue, built once for the connections of one replica.
type Registry struct {
	deps     stock.Deps
	guards   *guard.Replica
	entries  map[string]*entry
	statuses []Status
	closers  []io.Closer // locks and deducters that work in the background
}

type entry struct {
	strategy  stock.Strategy
	deducters map[stock.Store]stock.Deducter
	refusals  map[stock.Store]error
}

// Status is a strategy and whether it can be used in this replica.
type Status struct {
	stock.Strategy
	Unavailable map[stock.Store]string // the reason, for each store on which it cannot be used
	Orders      []stock.Store          // the stores on which it takes orders

	Reservations []stock.Store // the stores on which it takes reservations
}

// Build builds every strategy on each of its stores. A strategy that lacks a server is kept, with the reason.
func Build(deps stock.Deps, strategies []stock.Strategy) (*Registry, error) {
	if err := stock.Validate(strategies); err != nil {
		return nil, err
	}
	if (deps.MySQL == nil) != (deps.MySQLLocks == nil) {
		return nil, errors.New("MySQL needs two pools: one for the work and one for named locks")
	}
	if deps.Log == nil {
		deps.Log = slog.New(slog.DiscardHandler)
	}
	r := &Registry{deps: deps, guards: guard.NewReplica(deps), entries: map[string]*entry{}}
	for _, strategy := range strategies {
		if err := r.add(strategy); err != nil {
			return nil, errors.Join(fmt.Errorf("strategy %s: %w", strategy.Name, err), r.Close())
		}
	}
	return r, nil
}

// add builds a strategy on each of its stores.
func (r *Registry) add(strategy stock.Strategy) error {
	e := &entry{
		strategy:  strategy,
		deducters: map[stock.Store]stock.Deducter{},
		refusals:  map[stock.Store]error{},
	}
	status := Status{Strategy: strategy, Unavailable: map[stock.Store]string{}}
	build := r.builder(strategy)
	for _, on := range strategy.Stores {
		if missing := r.missing(strategy.NeedsOn(on)); len(missing) > 0 {
			reason := "not configured: " + strings.Join(missing, ", ")
			e.refusals[on] = fmt.Errorf("strategy %s on store %s: %s: %w", strategy.Name, on, reason, stock.ErrUnavailable)
			status.Unavailable[on] = reason
			continue
		}
		deducter, err := build(on)
		if err != nil {
			return fmt.Errorf("store %s: %w", on, err)
		}
		e.deducters[on] = deducter
		if _, ok := deducter.(stock.Orderer); ok {
			status.Orders = append(status.Orders, on)
		}
		if _, ok := deducter.(stock.Reserver); ok {
			status.Reservations = append(status.Reservations, on)
		}
	}
	r.entries[strategy.Name] = e
	r.statuses = append(r.statuses, status)
	return nil
}

// builder returns the constructor of a strategy's deducters. Those of a lock share it: the queue of its waiters, or its
// session, is the same on all stores.
func (r *Registry) builder(strategy stock.Strategy) func(stock.Store) (stock.Deducter, error) {
	if strategy.Lock == nil {
		return func(stock.Store) (stock.Deducter, error) {
			deducter := strategy.New(r.deps)
			r.closeLater(deducter)
			return deducter, nil
		}
	}
	lock := sync.OnceValues(func() (locks.Locker, error) {
		locker, err := strategy.Lock(r.deps)
		if err == nil {
			r.closeLater(locker)
		}
		return locker, err
	})
	return func(on stock.Store) (stock.Deducter, error) {
		locker, err := lock()
		if err != nil {
			return nil, err
		}
		return r.guards.New(strategy, locker, on), nil
	}
}

func (r *Registry) closeLater(built any) {
	if closer, ok := built.(io.Closer); ok {
		r.closers = append(r.closers, closer)
	}
}

// Close ends the background work of locks and deducters. Deductions must have ended before, and connections are closed
// after it.
func (r *Registry) Close() error {
	var errs []error
	for _, closer := range r.closers {
		errs = append(errs, closer.Close())
	}
	return errors.Join(errs...)
}

// Statuses lists the strategies in the order of the catalogue.
func (r *Registry) Statuses() []Status { return r.statuses }

// Resolve finds the deducter of a strategy on a store, which is the strategy's first one if on is empty. Its errors are
// ErrUnknownStrategy, ErrUnsupportedStore and ErrUnavailable.
func (r *Registry) Resolve(name string, on stock.Store) (stock.Deducter, stock.Store, error) {
	e, ok := r.entries[name]
	if !ok {
		return nil, on, fmt.Errorf("%w %q", stock.ErrUnknownStrategy, name)
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
	return nil, on, fmt.Errorf("%w: strategy %s works on %v, not on %q",
		stock.ErrUnsupportedStore, name, e.strategy.Stores, on)
}

// ResolveOrders finds the orderer of a strategy. Its errors are those of Resolve, and ErrNoOrders.
func (r *Registry) ResolveOrders(name string, on stock.Store) (stock.Orderer, stock.Store, error) {
	return resolveAs[stock.Orderer](r, name, on, stock.ErrNoOrders)
}

// resolveAs is Resolve for a deducter that can do more. If it cannot, that is the given error.
func resolveAs[T any](r *Registry, name string, on stock.Store, no error) (able T, store stock.Store, err error) {
	deducter, on, err := r.Resolve(name, on)
	if err != nil {
		return able, on, err
	}
	able, ok := deducter.(T)
	if !ok {
		err = fmt.Errorf("strategy %s on store %s %w", name, on, no)
	}
	return able, on, err
}

// Sweep begins to put back the units of expired reservations, of all strategies that take any, until Close.
func (r *Registry) Sweep() {
	for _, status := range r.statuses {
		for _, on := range status.Reservations {
			reserver := r.entries[status.Name].deducters[on].(stock.Reserver)
			r.closers = append(r.closers, stock.InBackground(reserver.Sweep))
		}
	}
}

// ResolveReservations finds the reserver of a strategy. Its errors are those of Resolve, and ErrNoReservations.
func (r *Registry) ResolveReservations(name string, on stock.Store) (stock.Reserver, stock.Store, error) {
	return resolveAs[stock.Reserver](r, name, on, stock.ErrNoReservations)
}

// ResolveSales finds the canceller of a strategy. Its errors are those of Resolve, and ErrKeyUnsupported.
func (r *Registry) ResolveSales(name string, on stock.Store) (stock.Canceller, stock.Store, error) {
	deducter, on, err := r.Resolve(name, on)
	if err != nil {
		return nil, on, err
	}
	strategy := r.entries[name].strategy
	canceller, ok := deducter.(stock.Canceller)
	if !ok || !strategy.Idempotent() {
		err = fmt.Errorf("%w by strategy %s, which knows no sale by its key: %s",
			stock.ErrKeyUnsupported, name, strategy.NoKeys)
	}
	return canceller, on, err
}

// missing lists those of the needed servers that are not configured.
func (r *Registry) missing(needs []stock.Need) (names []string) {
	for _, need := range needs {
		if !r.deps.Has(need) {
			names = append(names, string(need))
		}
	}
	return names
}
