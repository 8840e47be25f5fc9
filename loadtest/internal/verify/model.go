package verify

import (
	"math"
	"slices"
	"sync/atomic"

	"github.com/anishathalye/porcupine"
)

// step is one input of the model.
type step struct {
	kind      stepKind
	count     int64 // units; negative for a restock with an unknown outcome
	remaining int64 // as reported
	place     int   // of a sale among the sales, from 1; 0 if any place is possible
}

type stepKind int

const (
	sell         stepKind = iota // a sale: stock >= count, and remaining = stock - count
	sellOmitting                 // a sale that does not report what remains: stock >= count
	refuse                       // sold out: stock < count
	putBack                      // restocked: stock += count
	send                         // a request with an unknown outcome: from now on it may take effect at any time, or never
	read                         // the stock was read: stock = remaining
)

// state is a state of the model: the stock, how many sales there were, and for each count how many unknown outcomes may
// still take effect.
//
// The usual model of an unknown outcome is a request that never returns. The checker would try it at every place in the
// history. Here it becomes possible when it is sent, and takes effect when a later answer cannot be explained without
// it. The same histories are accepted, at the price of one more state instead of all permutations.
type state struct {
	stock   int64
	sales   int
	pending [checkCounts]int32
}

// model is a correct service.
type model struct {
	counts []int64     // of the unknown outcomes, in the order of state.pending
	steps  int         // that may still be taken
	gaveUp atomic.Bool // there was no room for all steps or ways, so that "no" means nothing
}

func (m *model) porcupine(initial int64) porcupine.Model {
	nondeterministic := porcupine.NondeterministicModel{
		Init: func() []any { return []any{state{stock: initial}} },
		Step: func(from, input, _ any) []any {
			next := m.next(from.(state), input.(step))
			if len(next) == 0 {
				return nil
			}
			if m.steps--; m.steps < 0 {
				m.gaveUp.Store(true)
				return nil
			}
			states := make([]any, len(next))
			for i, s := range next {
				states[i] = s
			}
			return states
		},
	}
	return nondeterministic.ToModel()
}

// next returns every state that a step may lead to; none if the step is impossible.
func (m *model) next(from state, s step) []state {
	switch s.kind {
	case sell:
		if s.count < 1 || s.remaining < 0 || s.place > 0 && s.place != from.sales+1 {
			return nil
		}
		ways := m.reach(from, s.remaining+s.count, s.remaining+s.count, 0)
		for i := range ways {
			ways[i].stock -= s.count
			ways[i].sales++
		}
		return ways
	case sellOmitting:
		if s.count < 1 {
			return nil
		}
		ways := m.reach(from, s.count, math.MaxInt64, 0)
		for i := range ways {
			ways[i].stock -= s.count
		}
		return ways
	case refuse:
		return m.reach(from, 0, s.count-1, 0)
	case putBack:
		if s.remaining == 0 { // not reported: the stock is never empty right after a restock
			from.stock += s.count
			return []state{from}
		}
		ways := m.reach(from, s.remaining-s.count, s.remaining-s.count, 0)
		for i := range ways {
			ways[i].stock += s.count
		}
		return ways
	case send:
		from.pending[slices.Index(m.counts, s.count)]++
		return []state{from}
	default:
		return m.reach(from, s.remaining, s.remaining, 0)
	}
}

// reach returns the ways to let no more unknown outcomes take effect than needed for a stock from low to high. What
// need not take effect now still may later. It uses the outcomes with the counts from index first on.
func (m *model) reach(from state, low, high int64, first int) []state {
	if from.stock >= low && from.stock <= high {
		return []state{from}
	}
	least, most := from.stock, from.stock // if all that put back take effect, or all that take
	for i := first; i < len(m.counts); i++ {
		taken := m.counts[i] * int64(from.pending[i])
		least -= max(taken, 0)
		most -= min(taken, 0)
	}
	if most < low || least > high {
		return nil
	}
	var ways []state
	for i := first; i < len(m.counts); i++ {
		if from.pending[i] == 0 {
			continue
		}
		next := from
		next.pending[i]--
		next.stock -= m.counts[i]
		ways = append(ways, m.reach(next, low, high, i)...)
		if len(ways) > checkWays {
			m.gaveUp.Store(true)
			return ways[:checkWays]
		}
	}
	return ways
}
