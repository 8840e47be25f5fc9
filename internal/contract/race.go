package contract

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// Race is what clients ask for at the same time, after a beginning. Each client sends one request after another. As
// text, requests are separated by semicolons, and the beginning and the clients by slashes:
//
//	set 10a; sell 1a k / cancel k / sell 2a k
type Race struct {
	Before  Script
	Clients []Script
}

// ParseRace reads a race.
func ParseRace(text string) (r Race, err error) {
	for n, part := range strings.Split(text, "/") {
		s, err := Parse(strings.ReplaceAll(part, ";", "\n"))
		if err != nil {
			return r, err
		}
		if n == 0 {
			r.Before = s
			continue
		}
		if len(s) == 0 {
			return r, fmt.Errorf("client %c asks for nothing", letter(n-1))
		}
		r.Clients = append(r.Clients, s)
	}
	for _, q := range slices.Concat(r.Clients...) {
		if q.Verb == Later || q.Verb == Prune || q.Manner == Leave {
			return r, fmt.Errorf("%s: a client cannot ask for that", q)
		}
	}
	return r, nil
}

// String writes the race in one line.
func (r Race) String() string {
	parts := []string{r.Before.inLine()}
	for _, s := range r.Clients {
		parts = append(parts, s.inLine())
	}
	return strings.Join(parts, " / ")
}

func (s Script) inLine() string {
	return strings.ReplaceAll(strings.TrimSpace(s.String()), "\n", "; ")
}

// Requests lists all requests of a race.
func (r Race) Requests() Script { return slices.Concat(r.Before, slices.Concat(r.Clients...)) }

// Race makes up a race of some clients: a few requests before it, of which each client knows.
func (can Can) Race(rng *rand.Rand, clients int) (r Race) {
	can.Manner, can.Leave, can.Time, can.Prune = false, false, false, false
	const before = 3
	s := can.Generate(rng, rng.IntN(before+1))
	g := generator{Can: can, rng: rng, by: []string{""}, script: s}
	for _, q := range s {
		if q.Verb == Hold {
			g.holds++
		}
	}
	r.Before = s
	for range clients {
		client := Script{g.sent()}
		if g.chance(3) {
			client = append(client, g.sent())
		}
		r.Clients = append(r.Clients, client)
	}
	return r
}

// sent is a request of a client. A stock that is set while others sell is another matter: some strategies overwrite it.
func (g *generator) sent() Request {
	q := g.request()
	for q.Verb == Set {
		q = g.request()
	}
	q.Replica = 0
	g.script = append(g.script, q)
	return q
}

// Simpler lists races that are a little simpler.
func (r Race) Simpler() (all []Race) {
	for _, s := range r.Before.simpler() {
		all = append(all, Race{s, r.Clients})
	}
	for n := range r.Clients {
		if len(r.Clients) > 2 {
			all = append(all, Race{r.Before, slices.Delete(slices.Clone(r.Clients), n, n+1)})
		}
		for _, s := range r.Clients[n].simpler() {
			if len(s) > 0 {
				clients := slices.Clone(r.Clients)
				clients[n] = s
				all = append(all, Race{r.Before, clients})
			}
		}
	}
	return all
}

// Call is a request with its answer, by a clock that all clients share.
type Call struct {
	Request
	Client         string
	Answer         string
	Sent, Received int64 // Received means nothing if the outcome is unknown
}

// Stock is the units of an item that a store has when all requests were answered.
type Stock struct {
	Store string
	Item  byte
	Units int64
}

// Explain returns nil if the calls, one after another in some order, lead to their answers and to what the stores have.
// A call that was answered before another one was sent comes before it. Otherwise it returns a MismatchError about
// what contradicts the order that explains most answers, and that order as lines of text.
func Explain(rules map[string]Rules, calls []Call, left []Stock) (order []string, err error) {
	e := explanation{left: left}
	w := NewWorld(rules)
	w.unknowns = len(calls)
	calls = slices.DeleteFunc(slices.Clone(calls), func(c Call) bool { return c.Answer == Refused })
	if e.explain(w, calls, nil) {
		return nil, nil
	}
	return e.order, e.wrong
}

// explanation is the search for an order.
type explanation struct {
	left  []Stock
	most  int // calls that an order has explained
	order []string
	wrong error
}

// explain reports whether there is an order of the calls that are left. It tries those first that were sent first.
func (e *explanation) explain(w *World, calls []Call, before []string) bool {
	if len(calls) == 0 {
		return e.leaves(w, before)
	}
	slices.SortStableFunc(calls, func(a, b Call) int { return cmp.Compare(a.Sent, b.Sent) })
	for n, c := range calls {
		if slices.ContainsFunc(calls, func(o Call) bool { return o.Answer != Unknown && o.Received < c.Sent }) {
			break
		}
		after := *w
		order := append(slices.Clip(before), fmt.Sprintf("%s: %s | %s", c.Client, c.Request, c.Answer))
		if err := after.Answered(c.Request, c.Answer); err != nil {
			e.note(order, err)
			continue
		}
		if e.explain(&after, slices.Delete(slices.Clone(calls), n, n+1), order) {
			return true
		}
		if c.Answer == Unknown { // it may take effect at any later time
			return false
		}
	}
	return false
}

// leaves reports whether the stores have what they must have in the end.
func (e *explanation) leaves(w *World, order []string) bool {
	end := *w
	for _, s := range e.left {
		if err := end.Found(s.Store, s.Item, s.Units); err != nil {
			e.note(order, err)
			return false
		}
	}
	return true
}

// note keeps what contradicts an order, if it has explained most. What is not a MismatchError says that nobody knows.
func (e *explanation) note(order []string, err error) {
	var mismatch *MismatchError
	if known := errors.As(err, &mismatch); e.wrong == nil || !known || len(order) > e.most {
		e.most, e.order, e.wrong = len(order), order, err
	}
}
