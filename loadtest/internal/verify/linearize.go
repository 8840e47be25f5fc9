package verify

import (
	"cmp"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// Limits of the checker. Deciding linearizability is NP-complete (Gibbons and Korach, 1997), so it may have to give up.
const (
	checkTime   = 5 * time.Second // for all items together
	checkMemory = 512 << 20       // bytes, for one item
	checkCounts = 8               // different counts among the unknown outcomes of one item
	checkWays   = 512             // ways to explain one answer by unknown outcomes
)

// answer is the checker's answer, from the best to the worst.
type answer int

const (
	yes answer = iota
	undecided
	no
)

func (a answer) pointer() *bool {
	if a == undecided {
		return nil
	}
	held := a == yes
	return &held
}

func answerOf(held *bool) answer {
	switch {
	case held == nil:
		return undecided
	case *held:
		return yes
	}
	return no
}

// linearizability checks whether some sequence of all requests, each at a time between being sent and being answered,
// explains every answer and the final stock (linearizability: Herlihy and Wing, 1990). It only searches for one if no
// simpler proof shows that there is none.
func (b *books) linearizability() (r result) {
	a := yes
	if b.undersold().findings > 0 {
		a = no
	}
	for _, it := range b.items {
		if !it.finalRead {
			a = max(a, undecided)
		}
		if it.oversold() > 0 || it.lost() > 0 || it.leaked() > 0 {
			a = no
		}
		for other, e := range it.sameStock() {
			r.findf("item %d: requests %s and %s were both told %d remaining", it.id, name(other.Op), name(e.Op), e.Remaining)
			a = no
		}
	}
	if a == yes {
		deadline := time.Now().Add(checkTime)
		for _, it := range b.items {
			found, reason := it.linearizable(deadline)
			switch found {
			case no:
				r.findf("item %d: no sequence of the requests explains their answers%s", it.id, it.contradiction())
			case undecided:
				r.remarkf("item %d: whether the answers are linearizable is undecided: %s", it.id, reason)
			}
			a = max(a, found)
		}
	}
	r.linearizable = &a
	return r
}

// sameStock yields the sales that left the same stock behind as an earlier one, each after that one. This is impossible
// if the stock can only have fallen, and means nothing otherwise.
func (it *item) sameStock() iter.Seq2[effect, effect] {
	return func(yield func(effect, effect) bool) {
		if !it.neverRestocked() {
			return
		}
		first := map[int64]effect{} // by remaining stock
		for _, e := range it.told {
			if other, taken := first[e.Remaining]; !taken {
				first[e.Remaining] = e
			} else if !yield(other, e) {
				return
			}
		}
	}
}

// linearizable asks porcupine. If the answer is undecided, reason says why.
func (it *item) linearizable(deadline time.Time) (a answer, reason string) {
	outOfTime := fmt.Sprintf("the checker ran out of its %v", checkTime)
	left := time.Until(deadline)
	if left <= 0 {
		return undecided, outOfTime
	}
	ops := it.operations()
	m := it.model(ops)
	if len(m.counts) > checkCounts {
		return undecided, fmt.Sprintf("the unknown outcomes have more than %d different counts", checkCounts)
	}
	if m.steps < len(ops) {
		return undecided, fmt.Sprintf("%d operations need more than the checker's memory", len(ops))
	}
	switch porcupine.CheckOperationsTimeout(m.porcupine(it.initial), ops, left) {
	case porcupine.Ok:
		return yes, ""
	case porcupine.Illegal:
		if m.gaveUp.Load() {
			return undecided, "the possible explanations of the answers need more than the checker's memory"
		}
		return no, ""
	}
	return undecided, outOfTime
}

// model returns a correct service, for the check of these operations. For each step that it takes, the checker
// remembers which operations it has placed, a bit each, and the state.
func (it *item) model(ops []porcupine.Operation) *model {
	return &model{counts: it.unknownCounts(), steps: checkMemory / (len(ops)/8 + 256)}
}

// unknownCounts returns the different counts among the unknown outcomes. Those of restocks are negative.
func (it *item) unknownCounts() (counts []int64) {
	for _, op := range it.unknown {
		counts = append(counts, op.Count)
	}
	for _, op := range it.maybe {
		counts = append(counts, -op.Count)
	}
	slices.Sort(counts)
	return slices.Compact(counts)
}

// operations translates the requests for the checker. If the stock can only have fallen, some of them can be pinned
// down, which spares the checker from trying their permutations.
func (it *item) operations() (ops []porcupine.Operation) {
	onlyFalls := it.neverRestocked()
	end := int64(math.MinInt64)
	add := func(s step, call, ret int64) {
		end = max(end, ret)
		ops = append(ops, porcupine.Operation{Input: s, Call: call, Return: ret})
	}
	told := it.byRemaining()
	for i, e := range told {
		s := step{kind: sell, count: e.Count, remaining: e.Remaining}
		if onlyFalls {
			s.place = i + 1 // the sales can only have happened in this sequence
		}
		add(s, e.since, e.until)
	}
	for _, e := range it.omitting {
		until := e.until
		if onlyFalls && len(told) == 0 {
			// A sale that finds enough at any time finds enough at its beginning, and the sooner it happens, the more
			// refusals it explains.
			until = e.since
		}
		add(step{kind: sellOmitting, count: e.Count}, e.since, until)
	}
	for _, e := range it.refused {
		since := e.since
		if onlyFalls {
			since = e.until // a refusal that was right at any time is right at its end
		}
		add(step{kind: refuse, count: e.Count}, since, e.until)
	}
	for _, op := range it.restocks {
		add(step{kind: putBack, count: op.Count, remaining: op.Remaining}, op.SentNS, op.ReceivedNS)
	}
	for _, op := range it.unknown {
		add(step{kind: send, count: op.Count}, op.SentNS, op.SentNS)
	}
	for _, op := range it.maybe {
		add(step{kind: send, count: -op.Count}, op.SentNS, op.SentNS)
	}
	add(step{kind: read, remaining: it.final}, end+1, end+1)
	return ops
}

// byRemaining returns the sales that report the remaining stock, from the highest to the lowest.
func (it *item) byRemaining() []effect {
	told := slices.Clone(it.told)
	slices.SortStableFunc(told, func(x, y effect) int { return cmp.Compare(y.Remaining, x.Remaining) })
	return told
}

// contradiction names requests whose answers contradict each other, if that can be said in a sentence. It continues
// one.
func (it *item) contradiction() string {
	sales := it.byRemaining()
	if !it.neverRestocked() || len(sales) == 0 {
		return ""
	}
	// The stock only fell, so the sales must have happened in this sequence.
	latest := sales[0] // of the sales so far, the one that was sent last
	for _, e := range sales[1:] {
		if e.until < latest.since {
			return fmt.Sprintf(": request %s was told %d remaining before request %s was sent, which was told %d",
				name(e.Op), e.Remaining, name(latest.Op), latest.Remaining)
		}
		if e.since > latest.since {
			latest = e
		}
	}
	if len(it.unknown) > 0 || len(sales) < len(it.sold) {
		return ""
	}
	stock, before := it.initial, "the first sale"
	for _, e := range sales {
		if e.Remaining+e.Count != stock {
			return fmt.Sprintf(": request %s took %d and was told %d remaining, but %s left %d",
				name(e.Op), e.Count, e.Remaining, before, stock)
		}
		stock, before = e.Remaining, "request "+name(e.Op)
	}
	return ""
}
