// Package barrier lets goroutines meet: something is done once for all of them, as soon as each is ready for it.
package barrier

import (
	"context"
	"sync"
)

// A Barrier lets a fixed number of goroutines, its members, wait for each other, again and again.
type Barrier struct {
	mu      sync.Mutex
	members int
	waiting int
	do      func(context.Context) error // what they wait for
	over    chan struct{}               // closed when it has been done
	err     error                       // of what was done last
}

// New returns a Barrier for a number of members.
func New(members int) *Barrier { return &Barrier{members: members, over: make(chan struct{})} }

// Meet waits until every member has called Meet or Leave. Then the last of them calls, with its own ctx, the do of the
// last Meet. Meet returns its error. The Barrier is of no use once the ctx of a member has ended.
func (b *Barrier) Meet(ctx context.Context, do func(context.Context) error) error {
	b.mu.Lock()
	b.waiting++
	b.do = do
	over := b.over
	b.doIfReady(ctx)
	b.mu.Unlock()
	select {
	case <-over:
	case <-ctx.Done():
		return ctx.Err()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

// Leave must be called by each member that will not wait any more.
func (b *Barrier) Leave(ctx context.Context) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.members--
	b.doIfReady(ctx)
}

func (b *Barrier) doIfReady(ctx context.Context) {
	if b.waiting == 0 || b.waiting < b.members {
		return
	}
	b.err = b.do(ctx)
	b.waiting = 0
	close(b.over)
	b.over = make(chan struct{})
}
