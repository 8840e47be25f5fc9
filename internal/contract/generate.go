package contract

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"
)

// Can says which requests a script may have.
type Can struct {
	Rules   map[string]Rules // see NewWorld
	Time    bool             // later
	Prune   bool
	Restock bool
	Cancel  bool
	Manner  bool // try and work
	Known   bool // only items that exist
	One     bool // each request sells one unit
	Items   int
}

// Generate makes up a script. Items, units and keys are few, so that requests collide. Half of the requests with a key
// vary one that came before.
func (can Can) Generate(rng *rand.Rand, requests int) (s Script) {
	g := generator{Can: can, rng: rng, by: slices.Sorted(maps.Keys(can.Rules))}
	for item := range can.Items {
		g.script = append(g.script, Request{Verb: Set, Lines: []Line{{letter(item), 1 + rng.Int64N(10)}}})
	}
	for range requests {
		g.script = append(g.script, g.request())
	}
	return g.script
}

func letter(n int) byte { return 'a' + byte(n) }

type generator struct {
	Can
	rng    *rand.Rand
	by     []string
	script Script
	holds  int // that were made
}

// one returns one of the words.
func (g *generator) one(words ...string) string { return words[g.rng.IntN(len(words))] }

func (g *generator) chance(n int) bool { return g.rng.IntN(n) == 0 }

func (g *generator) request() (q Request) {
	q.Replica = g.rng.IntN(2)
	if g.chance(4) {
		q.By = g.by[g.rng.IntN(len(g.by))]
	}
	r := g.Rules[q.By]
	switch {
	case g.chance(8):
		q.Verb = Set
		if g.Restock && (r.Behind != "" || r.Store != "redis") && g.chance(2) {
			q.Verb = Restock
		}
		q.Lines = []Line{g.line(10)}
		if q.Verb == Restock && g.holds == 0 && g.chance(5) {
			q.Lines[0].Count = MaxStock - q.Lines[0].Count
		}
		return q
	case g.Time && (g.chance(12) || g.holds > 0 && g.chance(8)):
		return Request{Verb: Later, Time: []time.Duration{30 * time.Second, 2 * time.Minute}[g.rng.IntN(2)]}
	case g.Prune && g.holds == 0 && g.chance(30):
		return Request{Verb: Prune}
	case g.holds > 0 && r.Holds && g.chance(3):
		q.Verb, q.Name = Verb(g.one("confirm", "release", "find")), g.name()
		return q
	case r.Keys != "" && g.chance(2):
		if again, ok := g.again(q); ok {
			return again
		}
	}
	return g.sale(q, r)
}

// sale asks for units that nobody has asked for before.
func (g *generator) sale(q Request, r Rules) Request {
	q.Verb, q.Lines = Sell, []Line{g.line(4)}
	if g.chance(5) {
		q.Lines[0] = g.line(12) // more than are left
	}
	if r.Keys != "" && !g.chance(4) {
		q.Key = g.one("k", "l", "m")
	}
	switch {
	case r.Orders && g.chance(3):
		q.Verb = Order
		for range g.rng.IntN(3) {
			q.Lines = append(q.Lines, g.line(4))
		}
	case r.Holds && g.chance(2):
		g.holds++
		q.Verb, q.Name = Hold, fmt.Sprintf("h%d", g.holds)
	}
	if g.Manner {
		q.Manner = g.one("", "", "try", "work")
	}
	return q
}

func (g *generator) line(most int64) Line {
	l := Line{letter(g.rng.IntN(g.Items)), 1 + g.rng.Int64N(most)}
	if !g.Known && g.chance(20) {
		l.Item = 'u'
	}
	if g.One {
		l.Count = 1
	}
	return l
}

func (g *generator) name() string { return fmt.Sprintf("h%d", 1+g.rng.IntN(g.holds)) }

// again asks once more with a key that was used: for the same, for something else, or to cancel it.
func (g *generator) again(q Request) (Request, bool) {
	keyed := slices.DeleteFunc(slices.Clone(g.script), func(q Request) bool { return q.Key == "" })
	if len(keyed) == 0 {
		return q, false
	}
	first := keyed[g.rng.IntN(len(keyed))]
	q.Key = first.Key
	switch n := g.rng.IntN(10); {
	case g.Cancel && n < 4:
		q.Verb = Cancel
		if n < 2 {
			q.Lines = []Line{{Count: 1 + g.rng.Int64N(4)}}
			if g.chance(2) {
				q.Lines[0].Item = g.line(1).Item
			}
		}
		return q, true
	case g.Cancel && n < 5:
		q.Verb = Look
		return q, true
	case first.Verb == Cancel || first.Verb == Look || !g.suits(q, first):
		return q, false
	}
	by, replica := q.By, q.Replica
	q = first
	q.By, q.Replica = by, replica
	q.Lines = slices.Clone(first.Lines)
	if at := g.rng.IntN(len(q.Lines)); g.chance(3) {
		q.Lines[at] = g.line(4) // perhaps another request
	}
	return q, true
}

// suits reports whether a strategy takes a request that was made of another one.
func (g *generator) suits(q, first Request) bool {
	r := g.Rules[q.By]
	return (first.Verb != Order || r.Orders) && (first.Verb != Hold || r.Holds)
}
