package contract

import (
	"cmp"
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
			return r, fmt.Errorf("client %c asks for nothing", 'A'+n-1)
		}
		r.Clients = append(r.Clients, s)
	}
	return r, r.check()
}

// check returns an error if a request cannot be part of a race.
func (r Race) check() error {
	if len(r.Before.items()) == 0 {
		return fmt.Errorf("%s: a race begins with a stock, such as: set 10a / sell 1a / sell 2a", r)
	}
	for n, s := range append([]Script{r.Before}, r.Clients...) {
		var known []string
		if n > 0 {
			known = r.Before.names()
		}
		for i, q := range s {
			known = append(known, s[i:i+1].names()...)
			switch {
			case q.Verb == Prune, q.Verb == Later && n > 0, q.Manner == Leave, q.By != "", q.Replica != 0:
				return fmt.Errorf("%s: a race cannot have that", q)
			case q.Verb == Set && n > 0:
				return fmt.Errorf("%s: the stock can only be set before the race", q)
			case q.Verb == Hold && q.Time != 0 && (q.Time < HoldTime || q.Time > mostHold):
				return fmt.Errorf("%s: units can be held for %v to %v", q, HoldTime, mostHold)
			case q.Name != "" && !slices.Contains(known, q.Name):
				return fmt.Errorf("%s: no earlier request of this client, and none before the race, holds %s", q, q.Name)
			case len(q.Lines) > 1 && q.Verb != Order && q.Verb != Cancel:
				return fmt.Errorf("%s: only an order has several lines", q)
			}
			for _, l := range q.Lines {
				if l.Count < 1 || (l.Item < 'a' || l.Item > 'z') && (l.Item != 0 || q.Verb != Cancel) {
					return fmt.Errorf("%s: a line is units of an item, such as 2a", q)
				}
			}
		}
	}
	return nil
}

// mostHold is how long the units of a race may be held.
const mostHold = 3 * HoldTime

// names lists the reservations that are made.
func (s Script) names() (all []string) {
	for _, q := range s {
		if q.Verb == Hold {
			all = append(all, q.Name)
		}
	}
	return all
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
	for i := range s {
		s[i].Replica = 0
	}
	g := generator{Can: can, rng: rng, by: []string{""}, script: s}
	for _, q := range s {
		if q.Verb == Hold {
			g.holds++
		}
	}
	r.Before = s
	for range clients {
		var client Script
		for n := 1 + g.rng.IntN(4)/3; len(client) < n; {
			q := g.request()
			q.Replica = 0
			if (Race{r.Before, []Script{append(slices.Clip(client), q)}}).check() == nil {
				client = append(client, q)
				g.script = append(g.script, q)
			}
		}
		r.Clients = append(r.Clients, client)
	}
	return r
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

// Explain looks for an order of the calls that leads to their answers and to the stocks. A call that was answered
// before another one was sent precedes it. If there is no such order, Explain returns the longest one that it found, as
// lines of text that end with the call that has a wrong answer, and what is wrong: a MismatchError.
func Explain(rules map[string]Rules, calls []Call, left []Stock) (order []string, err error) {
	e := explanation{left: left}
	w := NewWorld(rules)
	w.unknowns = len(calls)
	if e.explain(w, slices.Clone(calls), nil) {
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
		return e.stocksAgree(w, before)
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

// stocksAgree reports whether the stores have what they must have in the end.
func (e *explanation) stocksAgree(w *World, order []string) bool {
	end := *w
	for _, s := range e.left {
		if err := end.Found(s.Store, s.Item, s.Units); err != nil {
			e.note(order, err)
			return false
		}
	}
	return true
}

// note keeps what contradicts an order, if it has explained most.
func (e *explanation) note(order []string, err error) {
	if e.wrong == nil || len(order) > e.most {
		e.most, e.order, e.wrong = len(order), order, err
	}
}
