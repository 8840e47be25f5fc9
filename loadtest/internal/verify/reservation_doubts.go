package verify

import (
	"math"
	"slices"

	"stock/loadtest/internal/history"
)

// situations checks that the run had everything in it that a service may do wrong.
func (b *books) situations() (r result) {
	for _, s := range []struct {
		name string
		is   func(*reservation) bool
	}{
		{"confirmed", func(h *reservation) bool { return h.wasTold(history.Confirmed) }},
		{"cancelled", func(h *reservation) bool { return h.wasTold(history.Cancelled) }},
		{"left to expire", func(h *reservation) bool {
			return !h.asked(history.Confirm, math.MaxInt64) && !h.asked(history.Cancel, math.MaxInt64)
		}},
		{"confirmed late", (*reservation).askedLate},
		{"confirmed twice", func(h *reservation) bool { return h.times(history.Confirm, history.Confirmed) > 1 }},
		{"cancelled twice", func(h *reservation) bool { return h.times(history.Cancel, history.Cancelled) > 1 }},
		{"cancelled after it was confirmed", func(h *reservation) bool {
			return h.times(history.Cancel, history.Confirmed) > 0
		}},
		{"confirmed after it was cancelled", func(h *reservation) bool {
			return h.times(history.Confirm, history.Cancelled) > 0
		}},
		{"held again with its key", func(h *reservation) bool { return h.count(history.Hold) > 1 }},
		{"ended by another replica than held it", func(h *reservation) bool {
			return b.run.Replicas < 2 || slices.ContainsFunc(h.calls, func(c *history.Op) bool {
				return c.Kind != history.Hold && c.Replica != "" && c.Replica != h.Replica
			})
		}},
	} {
		if !slices.ContainsFunc(b.reservations, func(h *reservation) bool { return h.known && s.is(h) }) {
			r.findf("no reservation was %s: that was not tested", s.name)
		}
	}
	return r
}

// asked reports whether a request of a kind was sent before a time.
func (r *reservation) asked(kind string, before int64) bool {
	return slices.ContainsFunc(r.calls, func(c *history.Op) bool { return c.Kind == kind && c.SentNS < before })
}

// askedLate reports whether the first request to confirm came after the time had ended.
func (r *reservation) askedLate() bool {
	return r.asked(history.Confirm, math.MaxInt64) && !r.asked(history.Confirm, r.expiredNS)
}

// count counts the answered requests of a kind.
func (r *reservation) count(kind string) (n int) {
	for _, c := range r.calls {
		if c.Kind == kind && c.Outcome == history.Done {
			n++
		}
	}
	return n
}

// times counts the requests of a kind that were told that the reservation has ended so.
func (r *reservation) times(kind, state string) (n int) {
	for _, e := range r.told {
		if e.Kind == kind && e.state == state {
			n++
		}
	}
	return n
}
