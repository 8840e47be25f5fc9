package verify

import (
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
	var found examples
	for _, e := range it.refused {
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
			found.addf("item %d: request %s was refused and told that %d were left, which was not so during the request",
				it.id, name(e.Op), e.Remaining)
		}
	}
	r.findings = found.findings("item %d: %d refused buyers were told a stock that the item did not have",
		it.id, found.count)
	return r
}

// risingTokens checks that each sale has a greater fencing token than the sale before it, and that it has one if it
// should.
func (it *item) risingTokens() (r result) {
	if it.fenced {
		r = it.withoutToken()
	}
	if !it.neverRestocked() {
		return r // the sequence of the sales is not known
	}
	var found examples
	var last effect
	for _, e := range it.byRemaining() {
		if e.Token == 0 {
			continue
		}
		if e.Token <= last.Token {
			found.addf("item %d: request %s has token %d, and request %s after it has token %d, which is not greater",
				it.id, name(last.Op), last.Token, name(e.Op), e.Token)
		}
		last = e
	}
	r.findings = append(r.findings,
		found.findings("item %d: %d sales have no greater token than the sale before them", it.id, found.count)...)
	return r
}

// withoutToken finds the sales that have no fencing token.
func (it *item) withoutToken() (r result) {
	var found examples
	for _, e := range it.sold {
		if e.Token == 0 {
			found.addf("item %d: request %s was sold without a fencing token", it.id, name(e.Op))
		}
	}
	r.findings = found.findings("item %d: %d sales have no fencing token, which a fenced lock must issue",
		it.id, found.count)
	return r
}
