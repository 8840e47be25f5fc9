package fault

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"stock/loadtest/internal/topology"
)

// pausePoints lists the points at which a request can be parked, from the last to the first.
var pausePoints = []string{"before-commit", "before-write", "after-read", "after-lock"}

// park starts a request that stops at the last of the pause points that the strategy passes, and waits until it is
// there.
func (s *Stage) park(ctx context.Context, o order) (*pending, string, error) {
	return s.parkAtFirst(ctx, o, pausePoints...)
}

// parkAtFirst is park for the first of the given points that the strategy passes.
func (s *Stage) parkAtFirst(ctx context.Context, o order, points ...string) (*pending, string, error) {
	for i, point := range points {
		attempt := o
		if i > 0 {
			attempt.client = fmt.Sprintf("%s%d", o.client, i)
		}
		p, parked, err := s.parkAt(ctx, attempt, point)
		if parked || err != nil {
			return p, point, err
		}
	}
	return nil, "", fmt.Errorf("the strategy passes none of the pause points %v", points)
}

// parkAt starts a request that stops at a pause point, and waits until it is there. It reports whether it is: a request
// of a strategy that does not pass the point is answered instead.
func (s *Stage) parkAt(ctx context.Context, o order, point string) (p *pending, parked bool, err error) {
	o.pause = point
	p = s.start(ctx, o)
	p.at = o.at
	for {
		parked, err = s.pauses[o.at].has(ctx, s.Deployment, o.at, p.request)
		if parked || err != nil {
			return p, parked, err
		}
		select {
		case <-p.done:
			return p, false, p.err
		case <-ctx.Done():
			return p, false, ctx.Err()
		case <-time.After(pollInterval):
		}
	}
}

// release lets a parked request go on, and waits for its answer.
func (s *Stage) release(ctx context.Context, p *pending) error {
	if err := s.admin(ctx, http.MethodDelete, p.at, "/admin/pauses/"+p.request, nil); err != nil {
		return err
	}
	return p.wait()
}

// resume is release for a request that its replica may have given up meanwhile.
func (s *Stage) resume(ctx context.Context, p *pending) error {
	err := s.admin(ctx, http.MethodDelete, p.at, "/admin/pauses/"+p.request, nil)
	if err != nil && !errors.Is(err, errNotFound) {
		return err
	}
	return p.wait()
}

// pollInterval is the time between two looks at what a story waits for.
const pollInterval = 5 * time.Millisecond

// eventually waits until a condition holds that the story observes.
func eventually(ctx context.Context, what string, holds func() (bool, error)) error {
	for {
		held, err := holds()
		if held || err != nil {
			return err
		}
		select {
		case <-time.After(pollInterval):
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w", what, ctx.Err())
		}
	}
}

// pauses knows which requests are parked at a replica. Many cells ask at the same time.
type pauses struct {
	mu     sync.Mutex
	asked  time.Time
	parked map[string]bool // by the name of the request
}

// has reports whether a request is parked.
func (p *pauses) has(ctx context.Context, d *Deployment, at *topology.Isolated, request string) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.asked) >= pollInterval {
		var list []struct {
			RequestID string `json:"request_id"`
		}
		if err := d.admin(ctx, http.MethodGet, at, "/admin/pauses", &list); err != nil {
			return false, err
		}
		p.parked = map[string]bool{}
		for _, r := range list {
			p.parked[r.RequestID] = true
		}
		p.asked = time.Now()
	}
	return p.parked[request], nil
}
