package verify

import (
	"slices"

	"stock/loadtest/internal/history"
)

// receiptsMatch checks that every reply is for what its client asked for.
func (b *books) receiptsMatch() (r result) {
	for _, op := range b.ops {
		if op.Error == history.Mismatch {
			r.findf("request %s (%s) got a reply that is unreadable or for something else", name(op), op.Kind)
		}
	}
	return r
}

// replaysFollow checks that an answer is marked as a replay only if the same request had been sent earlier.
func (b *books) replaysFollow() (r result) {
	sales := slices.DeleteFunc(slices.Clone(b.ops), func(op history.Op) bool { return !op.Sells() })
	sent := map[string][]int64{} // when each request with such an answer was sent, by name
	for _, op := range sales {
		if op.Replayed {
			sent[op.Name] = nil
		}
	}
	if len(sent) == 0 {
		return r // most histories are long and have none
	}
	for _, op := range sales {
		if times, replayed := sent[op.Name]; replayed {
			sent[op.Name] = append(times, op.SentNS)
		}
	}
	for _, op := range sales {
		if !op.Replayed || op.Outcome == history.Withdrawn { // that answer repeats the one to a cancellation
			continue
		}
		sends := 0 // up to this answer, its own included
		for _, at := range sent[op.Name] {
			if at < op.ReceivedNS {
				sends++
			}
		}
		if sends < 2 {
			r.findf("request %s was sent once, but its answer is marked as a replay", name(op))
		}
	}
	return r
}
