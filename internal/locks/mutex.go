package locks

import (
	"context"
	"sync"
	"time"
)

// Mutex is a lock inside one process: a sync.Mutex a key, with a wait that can be given up.
//
// What breaks: another process knows nothing of it. Two replicas hold it at the same time.
//
// The zero value is ready. A key costs memory only while it is held or waited for.
type Mutex struct {
	mu   sync.Mutex
	keys map[string]*slot
}

// slot is the right to hold a key: a channel of one place, which is full while it is held.
type slot struct {
	held chan struct{}
	refs int // holder and waiters
}

// Lock implements Locker. The lease has no deadline and no token.
func (m *Mutex) Lock(ctx context.Context, key string) (*Lease, error) {
	if err := ctx.Err(); err != nil {
		return nil, notAcquired(key, err)
	}
	s := m.join(key)
	select {
	case s.held <- struct{}{}:
	case <-ctx.Done():
		m.leave(key, s)
		return nil, notAcquired(key, ctx.Err())
	}
	return newLease(ctx, time.Time{}, 0, func(context.Context) error {
		<-s.held
		m.leave(key, s)
		return nil
	}), nil
}

func (m *Mutex) join(key string) *slot {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, ok := m.keys[key]
	if !ok {
		if m.keys == nil {
			m.keys = map[string]*slot{}
		}
		s = &slot{held: make(chan struct{}, 1)}
		m.keys[key] = s
	}
	s.refs++
	return s
}

func (m *Mutex) leave(key string, s *slot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.refs--; s.refs == 0 {
		delete(m.keys, key)
	}
}
