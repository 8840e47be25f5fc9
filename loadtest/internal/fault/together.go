package fault

import (
	"context"
	"sync"
)

// company is the cells of a scenario that are played side by side. A fault that strikes them all, such as the death of
// a replica, waits until each is ready for it.
type company struct {
	mu      sync.Mutex
	members int
	waiting int
	strike  func(context.Context) error // the fault that they wait for
	over    chan struct{}               // closed when it has struck
	err     error                       // of the last fault

	turn sync.Mutex // held by the member whose turn it is
}

func newCompany(members int) *company {
	return &company{members: members, over: make(chan struct{})}
}

// together lets a fault strike once, as soon as every member waits for it or has left.
func (c *company) together(ctx context.Context, strike func(context.Context) error) error {
	c.mu.Lock()
	c.waiting++
	c.strike = strike
	over := c.over
	c.strikeIfReady(ctx)
	c.mu.Unlock()
	select {
	case <-over:
	case <-ctx.Done():
		return ctx.Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// leave must be called by each member when its story has ended.
func (c *company) leave(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.members--
	c.strikeIfReady(ctx)
}

func (c *company) strikeIfReady(ctx context.Context) {
	if c.waiting == 0 || c.waiting < c.members {
		return
	}
	c.err = c.strike(ctx)
	c.waiting = 0
	close(c.over)
	c.over = make(chan struct{})
}
