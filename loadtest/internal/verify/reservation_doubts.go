package verify

import (
	"slices"

	"stock/loadtest/internal/history"
)

// enoughHolds checks that enough holds were answered, and that every replica answered some.
func (b *books) enoughHolds() (r result) {
	if n := b.outcomes[history.Done] + b.outcomes[history.SoldOut]; n < MinAnswered {
		r.findf("only %d holds were answered, fewer than %d: too little load", n, MinAnswered)
	}
	replicas := map[string]bool{}
	for _, c := range b.calls {
		if c.Outcome == history.Done && c.Replica != "" {
			replicas[c.Replica] = true
		}
	}
	if len(replicas) < b.run.Replicas {
		r.findf("only %d of %d replicas answered: the others were not tested", len(replicas), b.run.Replicas)
	}
	return r
}

// count counts the calls with an outcome.
func (b *books) count(outcome history.Outcome) (n int) {
	for _, c := range b.calls {
		if c.Outcome == outcome {
			n++
		}
	}
	return n
}

func (b *books) fewUnknownCalls() (r result) {
	if n := b.count(history.Unknown); float64(n) > MaxUnknown*float64(len(b.calls)) {
		r.findf("the outcome of %d of %d requests is unknown, more than %.0f %%", n, len(b.calls), 100*MaxUnknown)
	}
	return r
}

func (b *books) fewBusyCalls() (r result) {
	n := b.count(history.Busy)
	r.figures.TurnedAway = int64(n)
	if float64(n) > MaxBusy*float64(len(b.calls)) {
		r.findf("%d of %d requests were answered busy, more than %.0f %%", n, len(b.calls), 100*MaxBusy)
	}
	return r
}

func (b *books) noCallRejected() (r result) {
	if n := b.count(history.Rejected); n > 0 {
		i := slices.IndexFunc(b.calls, func(c history.Call) bool { return c.Outcome == history.Rejected })
		r.findf("%d of %d requests were rejected, such as request %s (%d %s): the lab sent something invalid",
			n, len(b.calls), b.calls[i].RequestID, b.calls[i].Status, b.calls[i].Error)
	}
	return r
}

// callClocks checks that time did not run backwards, on the lab's clock and on the service's.
func (b *books) callClocks() (r result) {
	backwards := 0
	for _, c := range b.calls {
		if c.Outcome != history.Unknown && c.ReceivedNS < c.SentNS {
			backwards++
		}
	}
	if backwards > 0 {
		r.findf("%d replies were received before their requests were sent: the clocks cannot be trusted", backwards)
	}
	if b.clockKnown && b.clock.jumped() {
		r.findf("the times at which reservations were created contradict the lab's clock by %.0f ms: "+
			"what is late was not judged", float64(b.clock.low-b.clock.high)/1e6)
	}
	return r
}

// situations checks that the run had everything in it that a service may do wrong.
func (b *books) situations() (r result) {
	for _, s := range []struct {
		name string
		is   func(*reservation) bool
	}{
		{"confirmed", func(h *reservation) bool { return h.wasTold(history.Confirmed) }},
		{"cancelled", func(h *reservation) bool { return h.wasTold(history.Cancelled) }},
		{"left to expire", func(h *reservation) bool {
			return !h.asked(history.Confirm, h.lastNS()) && !h.asked(history.Cancel, h.lastNS())
		}},
		{"confirmed late", b.askedLate},
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
			return b.run.Replicas < 2 || slices.ContainsFunc(h.calls, func(c *history.Call) bool {
				return c.Kind != history.Hold && c.Replica != "" && c.Replica != h.Replica
			})
		}},
	} {
		if !slices.ContainsFunc(b.reservations, func(h *reservation) bool { return h.known && s.is(h) }) {
			r.findf("no reservation was %s: that was not tested", s.name)
		}
	}
	if len(b.resales()) == 0 {
		r.findf("no units that had expired were asked for again: that was not tested")
	}
	return r
}

// askedLate reports whether the first request to confirm a reservation came after its time had ended.
func (b *books) askedLate(h *reservation) bool {
	_, expired := b.expiry(h)
	return h.asked(history.Confirm, h.lastNS()) && !h.asked(history.Confirm, expired)
}

// lastNS is after every request.
func (r *reservation) lastNS() int64 {
	last := r.ReceivedNS
	for _, c := range r.calls {
		last = max(last, c.ReceivedNS)
	}
	return last + 1
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
