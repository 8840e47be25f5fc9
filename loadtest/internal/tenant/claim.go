package tenant

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"stock/internal/access"
)

// claimTime is how long a prefix is taken after its lab has died. Claims are renewed several times within it.
const claimTime = 20 * time.Second

// patience is how long a server may take for one answer. The work as a whole takes as long as the server has to.
const patience = 10 * time.Second

// claim keeps other labs from taking what is this one's.
type claim struct {
	stop     context.CancelFunc
	renewing sync.WaitGroup
	lost     chan struct{} // closed when somebody else has taken it
	loss     error         // says so; valid once lost is closed
}

// lostError says who has taken what was this lab's.
type lostError struct{ error }

// keep renews the claim in the background, until end is called or somebody else has it: hold then returns a lostError.
// Other failures are made up for by the next renewal.
func (c *claim) keep(ctx context.Context, hold func(context.Context) error) {
	ctx, c.stop = context.WithCancel(context.WithoutCancel(ctx))
	c.lost = make(chan struct{})
	c.renewing.Go(func() {
		ticker := time.NewTicker(claimTime / 5)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			if err := hold(ctx); isLost(err) {
				c.loss = err
				close(c.lost)
				return
			}
		}
	})
}

// end ends the renewals.
func (c *claim) end() {
	c.stop()
	c.renewing.Wait()
}

// Lost returns a channel that is closed when another lab, or somebody else, has taken what was this lab's: the
// measurements since then are worthless, and Loss says why.
func (c *claim) Lost() <-chan struct{} { return c.lost }

// Loss returns an error once Lost is closed.
func (c *claim) Loss() error {
	select {
	case <-c.lost:
		return c.loss
	default:
		return nil
	}
}

func isLost(err error) bool {
	_, lost := errors.AsType[lostError](err)
	return lost
}

// unreachable asks whether a server is running, unless its error says more.
func unreachable(err error) error {
	if access.Remedy(err) != "" {
		return access.Explain(err)
	}
	return fmt.Errorf("is it running? %w", err)
}
