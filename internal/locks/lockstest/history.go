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

// Check returns an error unless the history is linearizable (Herlihy and Wing, "Linearizability", 1990), which means
// that one lock could have had it: a lock that has one holder at a time, gives each a greater token than the one
// before, and is free when it says so.
//
//   - a lock is granted at some moment during the call of Lock, when nobody holds it;
//   - if Unlock succeeded, the lock ends during the call of Unlock;
//   - if it was lost, it ends after the lease's context, and before Unlock returns;
//   - if Unlock failed otherwise, it ends at any time after the lease's context, or after the call of Unlock.
//
// Call it when all locks have been released.
func (h *History) Check() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var ops []porcupine.Operation
	for _, g := range h.grants {
		if g.replied.IsZero() {
			return fmt.Errorf("a lock was not released: %v", h.describe(g))
		}
		earliest, latest := g.over, int64(math.MaxInt64) // of the end
		switch {
		case g.err == nil:
			earliest, latest = g.unlock, h.since(g.replied)
		case errors.Is(g.err, locks.ErrLeaseLost):
			latest = h.since(g.replied)
		}
		ops = append(ops,
			porcupine.Operation{
				Input: event{grant: g.id, token: g.token, begins: true},
				Call:  h.since(g.asked), Return: h.since(g.granted),
			},
			porcupine.Operation{Input: event{grant: g.id}, Call: h.since(earliest), Return: latest},
		)
	}
	switch result := porcupine.CheckOperationsTimeout(oneHolderModel, ops, Patience); result {
	case porcupine.Ok:
		return h.lostEarly()
	case porcupine.Illegal:
		return fmt.Errorf("the %d grants are not linearizable: %s", len(h.grants), h.explain())
	default:
		return fmt.Errorf("not decided within %v whether the %d grants are linearizable", Patience, len(h.grants))
	}
}

// lostEarly returns an error for a lock that was reported lost while its lease's context had not ended. Nothing takes
// locks away in these tests.
func (h *History) lostEarly() error {
	for _, g := range h.grants {
		if errors.Is(g.err, locks.ErrLeaseLost) && g.ended.IsZero() && g.replied.Before(g.deadline) {
			return fmt.Errorf("a lock was lost before its deadline: %v", h.describe(g))
		}
	}
	return nil
}

// event is an input of the model: the beginning or the end of a grant.
type event struct {
	grant  int // from 1
	token  uint64
	begins bool
}

// held is a state of the model.
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

// explain lists pairs of grants that evidently contradict each other.
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
				found = append(found, fmt.Sprintf("a released lock was held by another client: %v, after %v",
					h.describe(g), h.describe(next)))
			}
		}
	}
	if len(found) == 0 {
		return "no two grants contradict each other; all of them together do"
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
