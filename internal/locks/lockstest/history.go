package lockstest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"stock/internal/locks"
)

// History records the calls of the clients of one key, with their results and times. All times are read from the
// monotonic clock of this process, so Check does not depend on timers being on time.
type History struct {
	began time.Time

	mu     sync.Mutex
	grants []*Grant
}

// Grant is a lock that was granted, as its holder saw it.
type Grant struct {
	*locks.Lease
	history *History
	id      int // from 1

	token           uint64
	asked, granted  time.Time // when Lock was called, and when it returned
	deadline        time.Time // as of when Unlock was called; zero if there is none
	ended           time.Time // when the lease's context was seen to end before Unlock; zero if it was not
	over            time.Time // when the holder stopped relying on the lock
	unlock, replied time.Time // when Unlock was called, and when it returned; zero if it was not called
	err             error     // of Unlock
}

// NewHistory makes an empty History.
func NewHistory() *History { return &History{began: time.Now()} }

// Lock locks key and records it. key must be the same each time.
func (h *History) Lock(ctx context.Context, l locks.Locker, key string) (*Grant, error) {
	asked := time.Now()
	lease, err := l.Lock(ctx, key)
	granted := time.Now()
	if err != nil {
		return nil, err // not recorded: a grant without a reply has no holder
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	g := &Grant{Lease: lease, history: h, id: len(h.grants) + 1, token: lease.Token(), asked: asked, granted: granted}
	h.grants = append(h.grants, g)
	context.AfterFunc(lease.Context(), g.contextEnded)
	return g, nil
}

func (g *Grant) contextEnded() {
	g.history.mu.Lock()
	defer g.history.mu.Unlock()
	if g.unlock.IsZero() {
		g.ended = time.Now()
	}
}

// Unlock releases the lock and records it.
func (g *Grant) Unlock() error {
	g.letGo()
	err := g.Lease.Unlock()
	replied := time.Now()
	g.history.mu.Lock()
	defer g.history.mu.Unlock()
	g.err, g.replied = err, replied
	return err
}

// letGo records when the holder stopped relying on its lock: when the lease's context ended, at the deadline (its timer
// may be late), or now, whichever came first.
func (g *Grant) letGo() {
	g.history.mu.Lock()
	defer g.history.mu.Unlock()
	g.unlock, g.deadline = time.Now(), g.Deadline()
	g.over = g.unlock
	for _, end := range []time.Time{g.deadline, g.ended} {
		if !end.IsZero() && end.Before(g.over) {
			g.over = end
		}
	}
}

// Grants returns the number of grants so far.
func (h *History) Grants() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.grants)
}

// Check returns an error if a lock was lost before its deadline, since nothing takes locks away in these tests, or if
// one lock that has one holder at a time cannot have granted two of the locks:
//
//   - the second was granted while the first holder relied on its lock;
//   - the second was asked for after the first was granted, but has no greater token;
//   - the first was released although the second was granted in between.
//
// Call it when all locks have been released.
func (h *History) Check() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	sorted := slices.SortedFunc(slices.Values(h.grants), func(a, b *Grant) int { return a.granted.Compare(b.granted) })
	for i, g := range sorted {
		switch {
		case g.replied.IsZero():
			return fmt.Errorf("a lock was not released: %v", h.describe(g))
		case errors.Is(g.err, locks.ErrLeaseLost) && g.ended.IsZero() && g.replied.Before(g.deadline):
			return fmt.Errorf("a lock was lost before its deadline: %v", h.describe(g))
		}
		for _, next := range sorted[i+1:] {
			var what string
			switch {
			case next.granted.Before(g.over):
				what = "two hold the lock"
			case next.asked.After(g.granted) && next.token <= g.token && g.token > 0:
				what = "the token does not rise"
			case g.err == nil && next.asked.After(g.granted) && next.granted.Before(g.unlock):
				what = "a released lock was held by another client"
			default:
				continue
			}
			return fmt.Errorf("%s: %v, then %v", what, h.describe(g), h.describe(next))
		}
	}
	return nil
}

func (h *History) describe(g *Grant) string {
	at := func(t time.Time) string {
		if t.IsZero() {
			return "never"
		}
		return t.Sub(h.began).Round(time.Microsecond).String()
	}
	return fmt.Sprintf("grant %d (token %d, asked %s, granted %s, deadline %s, unlock %s to %s: %v)",
		g.id, g.token, at(g.asked), at(g.granted), at(g.deadline), at(g.unlock), at(g.replied), g.err)
}
