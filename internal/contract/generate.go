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
	Leave   bool // clients that hang up, if requests may meet
	Known   bool // only items that exist
	One     bool // each request sells one unit
	Items   int
}

// Generate makes up a script. Items, units and keys are few, so that requests collide. Most requests with a key
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
	left   int // requests whose client hangs up
	passed time.Duration
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
	switch last := g.script[len(g.script)-1]; {
	case last.Verb == Later && g.holds > 0 && r.Holds && g.chance(2):
		return g.ofHolds(q)
	case g.chance(8):
		return g.stock(q, r)
	case g.Time && g.passed < longest && (g.chance(12) || g.holds > 0 && g.chance(8)):
		q = Request{Verb: Later, Time: times[g.rng.IntN(len(times))]}
		g.passed += q.Time
		return q
	case g.Prune && g.holds == 0 && g.chance(30):
		return Request{Verb: Prune}
	case g.holds > 0 && r.Holds && g.chance(3):
		return g.ofHolds(q)
	case r.Keys != "":
		return g.keyed(q, r)
	}
	return g.sale(q, r)
}

// stock sets the stock of an item, or adds to it.
func (g *generator) stock(q Request, r Rules) Request {
	q.Verb, q.Lines = Set, []Line{g.line(10)}
	if g.Restock && (r.Behind != "" || r.Store != "redis" || r.Plain) && g.chance(2) {
		q.Verb = Restock
		if g.holds == 0 && !r.Plain && g.chance(5) {
			q.Lines[0].Count = MaxStock - q.Lines[0].Count
		}
	}
	return q
}

// keyed asks for something with a key: rarely it cancels a sale that may never come, and mostly it uses a key again.
func (g *generator) keyed(q Request, r Rules) Request {
	if g.Cancel && g.chance(16) {
		return g.cancel(Request{Key: g.key(), By: q.By, Replica: q.Replica}, Request{})
	}
	if !g.chance(3) {
		if again, ok := g.again(q); ok {
			return g.manner(again)
		}
	}
	return g.sale(q, r)
}

// times that pass: a reservation expires, or does not.
var times = []time.Duration{HoldTime / 2, 2 * HoldTime, 4 * HoldTime}

// longest is how much time may have passed before more passes. A service forgets reservations ten minutes after their
// end.
const longest = 5 * HoldTime

// ofHolds asks for a reservation that was made, or for units that may have come back from those that have expired.
func (g *generator) ofHolds(q Request) Request {
	if g.chance(4) {
		return g.hold(q, 12)
	}
	q.Verb, q.Name = Verb(g.one("confirm", "release", "find")), fmt.Sprintf("h%d", 1+g.rng.IntN(g.holds))
	return q
}

func (g *generator) hold(q Request, most int64) Request {
	g.holds++
	q.Verb, q.Name, q.Lines = Hold, fmt.Sprintf("h%d", g.holds), []Line{g.line(most)}
	if g.chance(4) {
		q.Time = 3 * HoldTime
	}
	return q
}

// key returns one of so few keys that many are used again, and so many that some are new.
func (g *generator) key() string { return g.one("k", "l", "m", "n", "o") }

// sale asks for units that nobody has asked for before.
func (g *generator) sale(q Request, r Rules) Request {
	q.Verb, q.Lines = Sell, []Line{g.line(4)}
	if g.chance(5) {
		q.Lines[0] = g.line(12) // more than are left
	}
	if r.Keys != "" && !g.chance(4) {
		q.Key = g.key()
	}
	switch {
	case r.Orders && g.chance(2):
		q.Verb = Order
		for range g.rng.IntN(3) {
			q.Lines = append(q.Lines, g.line(4))
		}
	case r.Holds && g.chance(2):
		q = g.hold(q, 4)
	}
	return g.manner(q)
}

// mostLeft leaves the model outcomes that are unknown for other reasons.
const mostLeft = mostUnder - 1

// mayLeave reports whether the client may hang up, so that the request is carried out beside the next one. It must be
// one step, which a reservation that is confirmed at once is not, and nobody would know the id of a reservation.
func (g *generator) mayLeave(q Request) bool {
	r := g.Rules[q.By]
	oneStep := q.Verb != Hold && (q.Verb != Sell || q.Key != "" || !r.Holds)
	return g.Leave && r.Meets && g.Rules[""].Meets && oneStep && g.left < mostLeft
}

// manner says how a request is sent.
func (g *generator) manner(q Request) Request {
	q.Manner = ""
	switch {
	case g.mayLeave(q) && g.chance(12):
		q.Manner = Leave
		g.left++
	case g.Manner && q.Verb != Cancel && q.Verb != Look:
		q.Manner = g.one("", "", Try, Work)
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

// again asks once more with a key that was used: for the same, for something else, or to cancel it.
func (g *generator) again(q Request) (Request, bool) {
	keyed := slices.DeleteFunc(slices.Clone(g.script), func(q Request) bool { return q.Key == "" })
	if len(keyed) == 0 {
		return q, false
	}
	first := keyed[g.rng.IntN(len(keyed))]
	q.Key = first.Key
	switch n := g.rng.IntN(10); {
	case g.Cancel && n < 5:
		return g.cancel(q, first), true
	case g.Cancel && n < 6 && !g.Rules[q.By].Plain:
		q.Verb = Look
		return q, true
	case first.Verb == Look || !g.suits(q, first):
		return q, false
	}
	by, replica := q.By, q.Replica
	q = first
	q.By, q.Replica = by, replica
	q.Lines = slices.Clone(first.Lines)
	if first.Verb != Cancel && g.chance(3) {
		g.vary(&q)
	}
	return q, true
}

// cancel cancels a whole sale, units of its only item, or units of each item.
func (g *generator) cancel(q, first Request) Request {
	q.Verb = Cancel
	if g.Rules[q.By].Plain {
		return q
	}
	switch g.rng.IntN(6) {
	case 0, 1, 2:
	case 3:
		q.Lines = []Line{{Count: 1 + g.rng.Int64N(4)}}
	case 4:
		q.Lines = []Line{g.line(4)}
	default:
		for _, l := range merged(first.Lines) {
			q.Lines = append(q.Lines, Line{l.Item, 1 + g.rng.Int64N(l.Count)})
		}
	}
	return q
}

// vary changes one thing that a key stands for.
func (g *generator) vary(q *Request) {
	line := &q.Lines[g.rng.IntN(len(q.Lines))]
	switch n := g.rng.IntN(4); {
	case n == 0 && q.Verb == Hold:
		q.Time = 2 * HoldTime
	case n == 0 && q.Verb == Order && len(q.Lines) > 1:
		q.Lines = q.Lines[1:]
	case n == 0 && q.Verb == Sell && g.Rules[q.By].Orders:
		q.Verb = Order
	case n == 1 && !g.One:
		line.Count++
	case n == 2:
		line.Item = g.line(1).Item
	default:
		*line = g.line(4)
	}
}

// suits reports whether a strategy takes a request that was made of another one.
func (g *generator) suits(q, first Request) bool {
	r := g.Rules[q.By]
	return (first.Verb != Order || r.Orders) && (first.Verb != Hold || r.Holds)
}
