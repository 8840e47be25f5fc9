package lockstest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"stock/internal/locks"
)

// History is what the clients of one key did and were told, and when. All times are of one monotonic clock, that of this
// process: no timer has to be on time for Check to be right.
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
	asked, granted  time.Time // Lock was called, and returned
	deadline        time.Time // as it was when Unlock was called; zero where there is none
	ended           time.Time // the lease's context ended before Unlock; zero where it did not, or was not seen to
	over            time.Time // from when on the holder did not rely on the lock any more
	unlock, replied time.Time // Unlock was called, and returned; zero where it was not
	err             error     // of Unlock
}

// NewHistory makes an empty one.
func NewHistory() *History { return &History{began: time.Now()} }

// Lock locks key, which has to be the same each time.
func (h *History) Lock(ctx context.Context, l locks.Locker, key string) (*Grant, error) {
	asked := time.Now()
	lease, err := l.Lock(ctx, key)
	granted := time.Now()
	if err != nil {
		return nil, err // of no effect: what was granted without a reply has no holder
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

// Unlock gives the lock back.
func (g *Grant) Unlock() error {
	g.letGo()
	err := g.Lease.Unlock()
	replied := time.Now()
	g.history.mu.Lock()
	defer g.history.mu.Unlock()
	g.err, g.replied = err, replied
	return err
}

// letGo is when the holder ceases to rely on its lock: when the lease's context has ended, at the deadline at the latest
// however late its timer is, or now.
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

// Grants is the number of them so far.
func (h *History) Grants() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.grants)
}

// Check says whether the history is linearizable (Herlihy and Wing, 1990): whether all of it can be explained by one lock
// that has one holder at a time, gives each a greater token than the one before, and lets go of it when it says so:
//
//   - a lock is granted at some moment while Lock was called, when nobody holds it;
//   - where Unlock succeeded, the lock ends while it was called, and not before;
//   - where it was lost, it ends after the lease's context, and before Unlock says so;
//   - where Unlock failed otherwise, it ends at any time after the lease's context, or after Unlock was called.
//
// Call it when all locks have been given back.
func (h *History) Check() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var ops []porcupine.Operation
	for _, g := range h.grants {
		if g.replied.IsZero() {
			return fmt.Errorf("a lock was not given back: %v", h.describe(g))
		}
		begins, ends := g.over, int64(math.MaxInt64)
		switch {
		case g.err == nil:
			begins, ends = g.unlock, h.since(g.replied)
		case errors.Is(g.err, locks.ErrLeaseLost):
			ends = h.since(g.replied)
		}
		ops = append(ops,
			porcupine.Operation{Input: event{grant: g.id, token: g.token, begins: true}, Call: h.since(g.asked), Return: h.since(g.granted)},
			porcupine.Operation{Input: event{grant: g.id}, Call: h.since(begins), Return: ends},
		)
	}
	switch result := porcupine.CheckOperationsTimeout(oneHolderModel, ops, patience); result {
	case porcupine.Ok:
		return h.lostEarly()
	case porcupine.Illegal:
		return fmt.Errorf("no order of %d grants explains them: %s", len(h.grants), h.explain())
	default:
		return fmt.Errorf("whether %d grants are linearizable is undecided: the checker's %v were used up", len(h.grants), patience)
	}
}

// lostEarly finds a lock that is said to be lost while its lease's context goes on. Nothing takes locks away here.
func (h *History) lostEarly() error {
	for _, g := range h.grants {
		if errors.Is(g.err, locks.ErrLeaseLost) && g.ended.IsZero() && g.replied.Before(g.deadline) {
			return fmt.Errorf("a lock was lost before its deadline: %v", h.describe(g))
		}
	}
	return nil
}

// event is the input of the model: a grant begins or ends.
type event struct {
	grant  int // from 1
	token  uint64
	begins bool
}

// held is the state of the model.
type held struct {
	by    int // 0: nobody
	token uint64
}

var oneHolderModel = porcupine.Model{
	Init: func() any { return held{} },
	Step: func(state, input, _ any) (bool, any) {
		now, e := state.(held), input.(event)
		if !e.begins {
			return now.by == e.grant, held{token: now.token}
		}
		free := now.by == 0 && (e.token == 0 || e.token > now.token)
		return free, held{by: e.grant, token: max(now.token, e.token)}
	},
}

func (h *History) since(t time.Time) int64 { return int64(t.Sub(h.began)) }

// explain lists the grants that contradict each other at the first glance.
func (h *History) explain() string {
	sorted := slices.SortedFunc(slices.Values(h.grants), func(a, b *Grant) int { return a.granted.Compare(b.granted) })
	var found []string
	for i, g := range sorted {
		for _, next := range sorted[i+1:] {
			switch {
			case next.granted.Before(g.over):
				found = append(found, fmt.Sprintf("two hold the lock: %v, and %v", h.describe(g), h.describe(next)))
			case next.asked.After(g.granted) && next.token <= g.token && g.token > 0:
				found = append(found, fmt.Sprintf("the token does not rise: %v, then %v", h.describe(g), h.describe(next)))
			case g.err == nil && next.asked.After(g.granted) && next.granted.Before(g.unlock):
				found = append(found, fmt.Sprintf("a lock was given back that another held: %v, after %v", h.describe(g), h.describe(next)))
			}
		}
	}
	if len(found) == 0 {
		return "see the model"
	}
	return strings.Join(found[:min(len(found), 5)], "; ")
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
