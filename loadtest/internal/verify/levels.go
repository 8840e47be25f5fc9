package verify

import (
	"cmp"
	"iter"
	"math"
	"slices"
)

// level is a stock that an item had between two sales, with the longest time for which it can have had it.
type level struct {
	units        int64
	since, until int64
}

// levels returns the stock that the item had, from its first to its last. It returns nothing if the answers do not tell
// all of them: the stock may have changed otherwise, or the answers contradict each other, which other checks find.
func (it *item) levels() []level {
	if !it.neverRestocked() || !it.finalRead || len(it.unknown)+len(it.omitting) > 0 {
		return nil
	}
	levels := []level{{units: it.initial, since: math.MinInt64, until: math.MaxInt64}}
	for _, e := range it.byRemaining() {
		before := levels[len(levels)-1]
		if before.units != e.Remaining+e.Count {
			return nil
		}
		levels = append(levels, level{units: e.Remaining, since: max(before.since, e.since), until: e.until})
	}
	// A level ends when the sale that leads to the next one was answered, and not after any later level ends.
	until := int64(math.MaxInt64)
	for i := range slices.Backward(levels) {
		answered := levels[i].until // the sale that led to this level
		levels[i].until = until
		until = min(until, answered)
	}
	return levels
}

// refusedTruly checks that each buyer who was refused was told what was left at some time during the request.
func (it *item) refusedTruly() (r result) {
	levels := it.levels()
	if levels == nil {
		return r
	}
	for _, e := range it.refused {
		if e.OmitsRemaining {
			continue
		}
		i, ok := slices.BinarySearchFunc(levels, e.Remaining, func(l level, units int64) int {
			switch {
			case l.units > units:
				return -1
			case l.units < units:
				return 1
			}
			return 0
		})
		if !ok || levels[i].since > e.until || levels[i].until < e.since {
			r.findf("item %d: request %s was refused and told that %d were left, which was not so during the request",
				it.id, name(e.Op), e.Remaining)
		}
	}
	return r
}

// risingTokens checks that each sale has a greater fencing token than the sale before it, and that it has one if it
// should.
func (it *item) risingTokens() (r result) {
	for _, e := range it.sold {
		if it.fenced && e.Token == 0 && !e.Replayed { // a repeated answer has none: its lock is free again
			r.findf("item %d: request %s was sold without a fencing token", it.id, name(e.Op))
		}
	}
	for before, e := range it.sequence() {
		if e.Token > 0 && e.Token <= before.Token {
			r.findf("item %d: request %s has token %d, and request %s after it has token %d, which is not greater",
				it.id, name(before.Op), before.Token, name(e.Op), e.Token)
		}
	}
	return r
}

// sequence yields each sale with one that was certainly made before it: with the last one that has a token or, if the
// item was restocked and what remains does not tell the sequence, with the one of the greatest token of all that were
// answered before it was sent.
func (it *item) sequence() iter.Seq2[effect, effect] {
	if it.neverRestocked() {
		return it.sequenceByRemaining
	}
	return func(yield func(before, e effect) bool) {
		var before effect
		sent := slices.SortedFunc(slices.Values(it.sold), func(a, b effect) int { return cmp.Compare(a.since, b.since) })
		answered := slices.SortedFunc(slices.Values(it.sold), func(a, b effect) int { return cmp.Compare(a.until, b.until) })
		for _, e := range sent {
			for ; len(answered) > 0 && answered[0].until < e.since; answered = answered[1:] {
				if answered[0].Token > before.Token {
					before = answered[0]
				}
			}
			if !yield(before, e) {
				return
			}
		}
	}
}

func (it *item) sequenceByRemaining(yield func(before, e effect) bool) {
	var before effect
	for _, e := range it.byRemaining() {
		if !yield(before, e) {
			return
		}
		if e.Token > 0 {
			before = e
		}
	}
}
