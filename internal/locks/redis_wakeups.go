package locks

import (
	"context"
	"sync"
	"time"
)

// wakeups leads what a subscription hears to the waiters of this process that it concerns.
type wakeups struct {
	mu      sync.Mutex
	waiters map[string]map[chan struct{}]bool // by name: what they listen for
}

// join adds a waiter for a name. It is to join before it asks for the lock: it would miss a release between the question
// and the joining. A wake-up that comes while it is not waiting is kept for it.
func (w *wakeups) join(name string) (woken <-chan struct{}, leave func()) {
	waiter := make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiters == nil {
		w.waiters = map[string]map[chan struct{}]bool{}
	}
	if w.waiters[name] == nil {
		w.waiters[name] = map[chan struct{}]bool{}
	}
	w.waiters[name][waiter] = true
	return waiter, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if delete(w.waiters[name], waiter); len(w.waiters[name]) == 0 {
			delete(w.waiters, name)
		}
	}
}

// wake wakes all waiters for a name.
func (w *wakeups) wake(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for waiter := range w.waiters[name] {
		signal(waiter)
	}
}

// wakeAll wakes everybody: wake-ups may have been missed.
func (w *wakeups) wakeAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, waiters := range w.waiters {
		for waiter := range waiters {
			signal(waiter)
		}
	}
}

// signal does not wait: one wake-up is as good as many.
func signal(waiter chan<- struct{}) {
	select {
	case waiter <- struct{}{}:
	default:
	}
}

// await returns when woken, after d at the latest, or with ctx.Err() as soon as ctx ends.
func await(ctx context.Context, woken <-chan struct{}, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-woken:
		return nil
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
