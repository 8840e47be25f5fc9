package verify

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"
)

// Limits of the checker. Deciding linearizability is NP-complete (Gibbons and Korach, 1997), so it may have to give up.
const (
	checkTime  = 5 * time.Second // for all goods together
	checkRoom  = 512 << 20       // bytes, of one goods
	checkKinds = 8               // different counts among the unknown outcomes of one goods
	checkWays  = 512             // in which unknown outcomes may explain one answer
)

// sameAnswer is the cheap proof: where the stock can only have fallen, no two sales leave the same behind. Sales that do not
// tell what they leave prove nothing here.
func (b *books) sameAnswer(wrong *findings) answer {
	if !b.onlyFell() {
		return yes
	}
	first := map[int64]effect{}
	found := 0
	for _, e := range b.told() {
		other, taken := first[e.Remaining]
		if !taken {
			first[e.Remaining] = e
			continue
		}
		if found++; found <= examples {
			wrong.add("goods %d: requests %s and %s were both told %d remaining", b.id, name(other.Op), name(e.Op), e.Remaining)
		}
	}
	if found > examples {
		wrong.add("goods %d: %d sales left behind what another one had left", b.id, found)
	}
	if found > 0 {
		return no
	}
	return yes
}

// step is one input of the model.
type step struct {
	kind      stepKind
	count     int64 // units; of restocks that may have happened, negative
	remaining int64 // as told
	turn      int   // of a sale where the stock can only have fallen: its place among the sales, from 1
}

type stepKind int

const (
	sell         stepKind = iota // sold: stock >= count, and remaining = stock - count
	sellSilently                 // sold, and nobody said what remains: stock >= count
	refuse                       // sold out: stock < count
	putBack                      // restocked: stock += count
	arm                          // an unknown outcome: from here on it may take effect at any time, or never
	look                         // somebody read the stock: stock = remaining
)

// world is a state of the model: the units in stock, how many sales there were, and how many unknown outcomes of each
// kind have not happened yet.
//
// The usual model of an unknown outcome is a request that never returns. The checker would try it at every place in the
// history. Here it only becomes possible when it is sent, and happens when a later answer cannot be explained without it:
// the same histories are accepted, for one more state instead of one more order of everything.
type world struct {
	stock int64
	sales int
	armed [checkKinds]int32
}

// linearize asks porcupine whether some order of all requests, each at a time between being sent and being answered,
// explains every answer and the stock read in the end (linearizability: Herlihy and Wing, 1990).
func linearize(all []*books, wrong, notes *findings) answer {
	deadline := time.Now().Add(checkTime)
	result := yes
	for _, b := range all {
		a, why := b.linearize(deadline)
		switch a {
		case no:
			wrong.add("goods %d: no order of the requests explains their answers%s", b.id, b.explain())
		case undecided:
			notes.add("goods %d: whether the answers are linearizable is undecided: %s", b.id, why)
		}
		result = worse(result, a)
	}
	return result
}

func (b *books) linearize(deadline time.Time) (a answer, why string) {
	left := time.Until(deadline)
	if left <= 0 {
		return undecided, fmt.Sprintf("the checker's %v were used up", checkTime)
	}
	kinds, ok := b.kinds()
	if !ok {
		return undecided, fmt.Sprintf("the unknown outcomes are of more than %d different counts", checkKinds)
	}
	ops := b.operations()
	// For each step that it takes, the checker remembers which operations it has placed, a bit each, and the state.
	m := model{kinds: kinds, steps: checkRoom / (len(ops)/8 + 256)}
	if m.steps < len(ops) {
		return undecided, fmt.Sprintf("%d operations are more than the checker has room for", len(ops))
	}
	switch porcupine.CheckOperationsTimeout(m.porcupine(b.initial), ops, left) {
	case porcupine.Ok:
		return yes, ""
	case porcupine.Illegal:
		if m.gaveUp.Load() {
			return undecided, "the answers can be explained in more ways than the checker has room for"
		}
		return no, ""
	}
	return undecided, fmt.Sprintf("the checker's %v were used up", checkTime)
}

// kinds lists the different counts among the unknown outcomes. Those of restocks are negative.
func (b *books) kinds() (kinds []int64, ok bool) {
	for _, op := range b.unknown {
		kinds = append(kinds, op.Count)
	}
	for _, op := range b.maybe {
		kinds = append(kinds, -op.Count)
	}
	slices.Sort(kinds)
	kinds = slices.Compact(kinds)
	return kinds, len(kinds) <= checkKinds
}

// operations translates the books for the checker.
func (b *books) operations() []porcupine.Operation {
	var ops []porcupine.Operation
	end := int64(math.MinInt64)
	add := func(s step, call, ret int64) {
		end = max(end, ret)
		ops = append(ops, porcupine.Operation{Input: s, Call: call, Return: ret})
	}
	chain := b.chain()
	for i, e := range chain {
		s := step{kind: sell, count: e.Count, remaining: e.Remaining}
		if b.onlyFell() {
			// Then the sales can only have happened in this order, and the checker need not try another.
			s.turn = i + 1
		}
		add(s, e.since, e.until)
	}
	for _, e := range b.untold() {
		until := e.until
		if b.onlyFell() && len(chain) == 0 {
			// Where the stock can only fall, a sale that finds enough at any time finds enough at its beginning, and the
			// sooner it is placed, the more refusals it explains.
			until = e.since
		}
		add(step{kind: sellSilently, count: e.Count}, e.since, until)
	}
	for _, e := range b.refused {
		since := e.since
		if b.onlyFell() {
			// Where the stock can only fall, a refusal that was ever right is right at its end. A moment instead of
			// an interval spares the checker every order of the refusals among themselves.
			since = e.until
		}
		add(step{kind: refuse, count: e.Count}, since, e.until)
	}
	for _, op := range b.restocks {
		add(step{kind: putBack, count: op.Count, remaining: op.Remaining}, op.SentNS, op.ReceivedNS)
	}
	for _, op := range b.unknown {
		add(step{kind: arm, count: op.Count}, op.SentNS, op.SentNS)
	}
	for _, op := range b.maybe {
		add(step{kind: arm, count: -op.Count}, op.SentNS, op.SentNS)
	}
	add(step{kind: look, remaining: b.final}, end+1, end+1)
	return ops
}

// chain returns the sales that tell what they left, from the most left behind to the least.
func (b *books) chain() []effect {
	chain := b.told()
	slices.SortStableFunc(chain, func(x, y effect) int { return cmp.Compare(y.Remaining, x.Remaining) })
	return chain
}

// model is the service as it should be.
type model struct {
	kinds  []int64
	steps  int         // that may still be taken
	gaveUp atomic.Bool // there was no room for all steps or ways: a "no" is not to be trusted
}

func (m *model) porcupine(initial int64) porcupine.Model {
	nondeterministic := porcupine.NondeterministicModel{
		Init: func() []any { return []any{world{stock: initial}} },
		Step: func(state, input, _ any) []any {
			next := m.next(state.(world), input.(step))
			if len(next) == 0 {
				return nil
			}
			if m.steps--; m.steps < 0 {
				m.gaveUp.Store(true)
				return nil
			}
			states := make([]any, len(next))
			for i, w := range next {
				states[i] = w
			}
			return states
		},
	}
	return nondeterministic.ToModel()
}

// next returns every world that a step may lead to; none where the step is impossible.
func (m *model) next(w world, s step) []world {
	switch s.kind {
	case sell:
		if s.count < 1 || s.remaining < 0 || s.turn > 0 && s.turn != w.sales+1 {
			return nil
		}
		ways := m.become(w, s.remaining+s.count)
		for i := range ways {
			ways[i].stock -= s.count
			ways[i].sales++
		}
		return ways
	case sellSilently:
		if s.count < 1 {
			return nil
		}
		ways := m.reach(w, s.count)
		for i := range ways {
			ways[i].stock -= s.count
		}
		return ways
	case refuse:
		return m.fallBelow(w, s.count)
	case putBack:
		if s.remaining == 0 { // not told: a stock is never empty right after a restock
			w.stock += s.count
			return []world{w}
		}
		ways := m.become(w, s.remaining-s.count)
		for i := range ways {
			ways[i].stock += s.count
		}
		return ways
	case arm:
		w.armed[slices.Index(m.kinds, s.count)]++
		return []world{w}
	default:
		return m.become(w, s.remaining)
	}
}

// become lets unknown outcomes happen until the stock is exactly this.
func (m *model) become(w world, stock int64) []world {
	if w.stock == stock {
		return []world{w} // those that need not happen now still may later
	}
	return m.happen(w, 0, func(w world, rest bounds) fit {
		switch d := w.stock - stock; {
		case d == 0:
			return fits
		case d < rest.low || d > rest.high:
			return hopeless
		}
		return short
	})
}

// reach lets unknown outcomes happen until the stock is at least count, and no more of them than needed.
func (m *model) reach(w world, count int64) []world {
	if w.stock >= count {
		return []world{w}
	}
	return m.happen(w, 0, func(w world, rest bounds) fit {
		switch {
		case w.stock >= count:
			return fits
		case w.stock-rest.low < count:
			return hopeless
		}
		return short
	})
}

// fallBelow lets unknown outcomes happen until the stock is below count, and no more of them than needed.
func (m *model) fallBelow(w world, count int64) []world {
	if w.stock < count {
		return []world{w}
	}
	return m.happen(w, 0, func(w world, rest bounds) fit {
		switch {
		case w.stock < 0:
			return hopeless
		case w.stock < count:
			return fits
		case w.stock-rest.high >= count:
			return hopeless
		}
		return short
	})
}

// bounds are the least and the most units that the unknown outcomes not yet considered can take.
type bounds struct{ low, high int64 }

type fit int

const (
	short    fit = iota // more has to happen
	fits                // this is a way
	hopeless            // whatever else happens
)

// happen returns the ways to let unknown outcomes of the kinds from the given one on happen until judge is content.
func (m *model) happen(w world, from int, judge func(world, bounds) fit) []world {
	var rest bounds
	for i := from; i < len(m.kinds); i++ {
		taken := m.kinds[i] * int64(w.armed[i])
		rest.low += min(taken, 0)
		rest.high += max(taken, 0)
	}
	switch judge(w, rest) {
	case fits:
		return []world{w}
	case hopeless:
		return nil
	}
	var ways []world
	for i := from; i < len(m.kinds); i++ {
		if w.armed[i] == 0 {
			continue
		}
		next := w
		next.armed[i]--
		next.stock -= m.kinds[i]
		ways = append(ways, m.happen(next, i, judge)...)
		if len(ways) > checkWays {
			m.gaveUp.Store(true)
			return ways[:checkWays]
		}
	}
	return ways
}

// explain names requests whose answers contradict each other, where that can be said simply.
func (b *books) explain() string {
	chain := b.chain()
	if !b.onlyFell() || len(chain) == 0 {
		return ""
	}
	// The chain is in the order in which it must have happened, as the stock only fell.
	latest := chain[0] // of the sales so far, the one that was sent last
	for _, e := range chain[1:] {
		if e.until < latest.since {
			return fmt.Sprintf(": request %s was told %d remaining before request %s was sent, which was told %d",
				name(e.Op), e.Remaining, name(latest.Op), latest.Remaining)
		}
		if e.since > latest.since {
			latest = e
		}
	}
	if len(b.unknown) > 0 || len(chain) < len(b.sold) {
		return ""
	}
	stock, before := b.initial, "the first sale"
	for _, e := range chain {
		if e.Remaining+e.Count != stock {
			return fmt.Sprintf(": request %s took %d and was told %d remaining, but %s left %d", name(e.Op), e.Count, e.Remaining, before, stock)
		}
		stock, before = e.Remaining, "request "+name(e.Op)
	}
	return ""
}
