package locks

import (
	"context"
	"sync"
	"time"
)

// Mutex is a lock within one process: like a sync.Mutex for each key, but Lock can be cancelled.
//
// What breaks: other processes do not see it. Two replicas can hold it at the same time.
//
// The zero value is ready to use. A key uses memory only while somebody holds it or waits for it.
type Mutex struct {
	mu   sync.Mutex
	keys map[string]*keyMutex
}

// keyMutex is the mutex of one key: a channel with room for one value, which is full while the key is held.
type keyMutex struct {
	held   chan struct{}
	refs   int     // the holder and the waiters
	passed *passed // what the last holder left to the next one; nil if that is nothing
}

// Lock implements Locker. The lease has no deadline and no token.
func (m *Mutex) Lock(ctx context.Context, key string) (*Lease, error) {
	k, err := m.enter(ctx, key)
	if err != nil {
		return nil, err
	}
	return newLease(ctx, time.Time{}, 0, func(context.Context) error {
		m.exit(key, k)
		return nil
	}), nil
}

// enter is Lock without a lease.
func (m *Mutex) enter(ctx context.Context, key string) (*keyMutex, error) {
	if err := ctx.Err(); err != nil {
		return nil, notAcquired(key, err)
	}
	k := m.join(key)
	if triesOnce(ctx) {
		select {
		case k.held <- struct{}{}:
			return k, nil
		default:
			m.leave(key, k)
			return nil, notAcquired(key, ErrHeld)
		}
	}
	select {
	case k.held <- struct{}{}:
		return k, nil
	case <-ctx.Done():
		m.leave(key, k)
		return nil, notAcquired(key, ctx.Err())
	}
}

func (m *Mutex) exit(key string, k *keyMutex) {
	<-k.held
	m.leave(key, k)
}

func (m *Mutex) join(key string) *keyMutex {
	m.mu.Lock()
	defer m.mu.Unlock()
	k, ok := m.keys[key]
	if !ok {
		if m.keys == nil {
			m.keys = map[string]*keyMutex{}
		}
		k = &keyMutex{held: make(chan struct{}, 1)}
		m.keys[key] = k
	}
	k.refs++
	return k
}

func (m *Mutex) leave(key string, k *keyMutex) {
	m.mu.Lock()
	k.refs--
	last := k.refs == 0
	if last {
		delete(m.keys, key)
	}
	m.mu.Unlock()
	if last && k.passed != nil {
		k.passed.undo()
	}
}

// wanted reports whether anybody waits for the holder of k.
func (m *Mutex) wanted(k *keyMutex) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return k.refs > 1
}
