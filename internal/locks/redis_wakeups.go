package locks

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// wakeups routes the messages of one channel to the local waiters they concern.
type wakeups struct {
	messages *subscription

	mu      sync.Mutex
	waiters map[string]map[chan struct{}]bool // by the message that wakes them
}

func newWakeups(client redis.UniversalClient, channel string) *wakeups {
	w := &wakeups{waiters: map[string]map[chan struct{}]bool{}}
	w.messages = newSubscription(client, channel, w.wake, w.wakeAll)
	return w
}

func (w *wakeups) channel() string { return w.messages.channel }

// join registers a waiter for a message. Call it before asking for the lock, so that no release in between is missed: a
// wake-up that comes while nobody waits is kept for the next wait.
func (w *wakeups) join(message string) (woken <-chan struct{}, leave func()) {
	waiter := make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiters[message] == nil {
		w.waiters[message] = map[chan struct{}]bool{}
	}
	w.waiters[message][waiter] = true
	return waiter, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if delete(w.waiters[message], waiter); len(w.waiters[message]) == 0 {
			delete(w.waiters, message)
		}
	}
}

// wait subscribes if that has not been done, and returns when woken, after d, or with ctx.Err() when ctx ends.
func (w *wakeups) wait(ctx context.Context, woken <-chan struct{}, d time.Duration) error {
	w.messages.start()
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

// wake wakes all waiters for a message.
func (w *wakeups) wake(message string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for waiter := range w.waiters[message] {
		signal(waiter)
	}
}

// wakeAll wakes every waiter: messages may have been missed.
func (w *wakeups) wakeAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, waiters := range w.waiters {
		for waiter := range waiters {
			signal(waiter)
		}
	}
}

func (w *wakeups) close() error { return w.messages.close() }

// signal does not block: a wake-up that is already pending is enough.
func signal(waiter chan<- struct{}) {
	select {
	case waiter <- struct{}{}:
	default:
	}
}
