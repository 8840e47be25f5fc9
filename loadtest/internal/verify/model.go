package verify

import (
	"fmt"
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
		DescribeOperation: func(input, _ any) string { return input.(step).describe() },
		DescribeState:     func(of any) string { return fmt.Sprintf("%d in stock", of.(state).stock) },
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
		ways := m.reachExactly(from, s.remaining+s.count)
		for i := range ways {
			ways[i].stock -= s.count
			ways[i].sales++
		}
		return ways
	case sellOmitting:
		if s.count < 1 {
			return nil
		}
		ways := m.reachAtLeast(from, s.count)
		for i := range ways {
			ways[i].stock -= s.count
		}
		return ways
	case refuse:
		return m.reachBelow(from, s.count)
	case putBack:
		if s.remaining == 0 { // not reported: the stock is never empty right after a restock
			from.stock += s.count
			return []state{from}
		}
		ways := m.reachExactly(from, s.remaining-s.count)
		for i := range ways {
			ways[i].stock += s.count
		}
		return ways
	case send:
		from.pending[slices.Index(m.counts, s.count)]++
		return []state{from}
	default:
		return m.reachExactly(from, s.remaining)
	}
}

// reachExactly lets unknown outcomes take effect until there is exactly this stock.
func (m *model) reachExactly(from state, stock int64) []state {
	if from.stock == stock {
		return []state{from} // what need not take effect now still may later
	}
	return m.reach(from, 0, func(s state, rest limits) progress {
		switch d := s.stock - stock; {
		case d == 0:
			return reached
		case d < rest.low || d > rest.high:
			return unreachable
		}
		return underWay
	})
}

// reachAtLeast lets no more unknown outcomes take effect than needed for a stock of at least count.
func (m *model) reachAtLeast(from state, count int64) []state {
	if from.stock >= count {
		return []state{from}
	}
	return m.reach(from, 0, func(s state, rest limits) progress {
		switch {
		case s.stock >= count:
			return reached
		case s.stock-rest.low < count:
			return unreachable
		}
		return underWay
	})
}

// reachBelow lets no more unknown outcomes take effect than needed for a stock below count.
func (m *model) reachBelow(from state, count int64) []state {
	if from.stock < count {
		return []state{from}
	}
	return m.reach(from, 0, func(s state, rest limits) progress {
		switch {
		case s.stock < 0:
			return unreachable
		case s.stock < count:
			return reached
		case s.stock-rest.high >= count:
			return unreachable
		}
		return underWay
	})
}

// limits are the least and the most units that the remaining unknown outcomes can take.
type limits struct{ low, high int64 }

type progress int

const (
	underWay    progress = iota // more has to take effect
	reached                     // this is a way
	unreachable                 // whatever else takes effect
)

// reach returns the ways to let unknown outcomes take effect until the goal is reached. It uses those with the counts
// from index first on.
func (m *model) reach(from state, first int, goal func(state, limits) progress) []state {
	var rest limits
	for i := first; i < len(m.counts); i++ {
		taken := m.counts[i] * int64(from.pending[i])
		rest.low += min(taken, 0)
		rest.high += max(taken, 0)
	}
	switch goal(from, rest) {
	case reached:
		return []state{from}
	case unreachable:
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
		ways = append(ways, m.reach(next, i, goal)...)
		if len(ways) > checkWays {
			m.gaveUp.Store(true)
			return ways[:checkWays]
		}
	}
	return ways
}
