package verify

import (
	"cmp"
	"math"
	"slices"

	"stock/loadtest/internal/history"
)

// reservation is units that were held, with everything that clients were told about them.
type reservation struct {
	history.Op // the first answer that told its id; without one, the hold whose outcome is unknown
	known      bool
	sentNS     int64 // when the first hold with its name was sent
	calls      []*history.Op
	told       []ending // in the sequence of the answers

	// The interval, on the lab's clock, in which its time ends. If it is not known, nobody can tell.
	expiresNS, expiredNS int64
}

// ending is an answer that told how a reservation has ended.
type ending struct {
	*history.Op
	state string
}

// gone is the state of a reservation that the service does not know.
const gone = "unknown to the service"

// endTold returns the end that an answer tells; empty: none.
func endTold(c *history.Op) string {
	switch {
	case c.Outcome == history.Done && c.State != history.Held:
		return c.State
	case c.Outcome != history.Refused:
		return ""
	}
	return map[string]string{
		history.ProblemExpired:     history.Expired,
		history.ProblemCancelled:   history.Cancelled,
		history.ProblemConfirmed:   history.Confirmed,
		history.ProblemUnknownHold: gone,
	}[c.Error]
}

// wasTold reports whether a client was told that the reservation ended so.
func (r *reservation) wasTold(state string) bool {
	return slices.ContainsFunc(r.told, func(e ending) bool { return e.state == state })
}

// ended reports whether a client was told how the reservation ended.
func (r *reservation) ended() bool {
	return r.wasTold(history.Confirmed) || r.wasTold(history.Cancelled) || r.wasTold(history.Expired)
}

// maybeConfirmed reports whether the reservation may be confirmed without anybody having been told how it ended.
func (r *reservation) maybeConfirmed() bool {
	return !r.ended() && r.first(history.Confirm) != math.MaxInt64
}

// first returns when the first request of a kind was sent that may have taken effect; math.MaxInt64: none was.
func (r *reservation) first(kind string) int64 {
	first := int64(math.MaxInt64)
	for _, c := range r.calls {
		if c.Kind == kind && (c.Outcome == history.Done || c.Outcome == history.Unknown) {
			first = min(first, c.SentNS)
		}
	}
	return first
}

// collectReservations sorts the calls of a run by reservation. A hold without a key is asked for once, so if its
// outcome is unknown, it may be a reservation that nobody knows.
func collectReservations(calls []history.Op) (all []*reservation) {
	byID, byName, first := map[string]*reservation{}, map[string]bool{}, map[string]int64{}
	for i := range calls {
		c := &calls[i]
		if c.Kind != history.Hold {
			continue
		}
		if sent, ok := first[c.Name]; !ok || c.SentNS < sent {
			first[c.Name] = c.SentNS
		}
		if c.Outcome == history.Done && byID[c.Reservation] == nil {
			byName[c.Name] = true
			r := &reservation{Op: *c, known: true}
			byID[c.Reservation] = r
			all = append(all, r)
		}
	}
	for i := range calls {
		c := &calls[i]
		if c.Kind == history.Hold && c.Outcome == history.Unknown && !byName[c.Name] {
			byName[c.Name] = true
			all = append(all, &reservation{Op: *c})
		}
		if r := byID[c.Reservation]; r != nil {
			r.calls = append(r.calls, c)
		}
	}
	for _, r := range all {
		r.sentNS = first[r.Name]
		slices.SortStableFunc(r.calls, func(a, b *history.Op) int { return cmp.Compare(a.ReceivedNS, b.ReceivedNS) })
		for _, c := range r.calls {
			if state := endTold(c); state != "" {
				r.told = append(r.told, ending{c, state})
			}
		}
	}
	return all
}

// asOps returns what the calls of a run mean for the stock at its end, when every reservation has ended: a confirmed
// one is a sale. It also returns the refused holds.
func (b *books) asOps() (ops []*history.Op) {
	for _, r := range b.reservations {
		sale := r.Op
		sale.Kind, sale.Name, sale.SentNS, sale.OmitsRemaining = history.Deduct, r.Reservation, r.sentNS, true
		sale.Outcome, sale.Again, sale.Replayed = history.Sold, false, false
		if r.wasTold(history.Confirmed) {
			ops = append(ops, &sale)
		} else if r.maybeConfirmed() {
			sale.Outcome = history.Unknown
			ops = append(ops, &sale)
		}
	}
	for _, op := range b.ops {
		if op.Kind == history.Hold && op.Outcome == history.SoldOut {
			op.Kind, op.Again, op.Replayed = history.Deduct, false, false
			ops = append(ops, &op)
		}
	}
	return ops
}

// serviceClock is how much the clock of the service is ahead of that of the lab, in nanoseconds. They need not run on
// the same host: every reservation was created between the sending of its hold and the answer (Cristian, "Probabilistic
// Clock Synchronization", 1989).
type serviceClock struct{ low, high int64 }

const (
	// clockReading is how imprecisely both clocks may be read, and how much they may drift apart during a run.
	clockReading = 2_000_000
	// clockJump is by how much more the bounds may contradict each other.
	clockJump = 10_000_000
)

// readClock bounds the difference between the clocks. ok is false if no answer tells.
func readClock(reservations []*reservation) (clock serviceClock, ok bool) {
	clock = serviceClock{low: math.MinInt64, high: math.MaxInt64}
	for _, r := range reservations {
		if r.known {
			created := r.CreatedUS * 1000
			clock.low, clock.high = max(clock.low, created-r.ReceivedNS), min(clock.high, created-r.sentNS)
			ok = true
		}
	}
	return clock, ok
}

// jumped reports whether no difference explains all answers.
func (c serviceClock) jumped() bool { return c.low > c.high+clockJump }

// inLab returns the interval, on the lab's clock, that contains a time of the service.
func (c serviceClock) inLab(us int64) (since, until int64) {
	low, high := min(c.low, c.high), max(c.low, c.high)
	return us*1000 - high - clockReading, us*1000 - low + clockReading
}

// enterReservations sorts what was asked about reservations.
func (b *books) enterReservations() {
	b.reservations = collectReservations(b.ops)
	b.clock, b.clockKnown = readClock(b.reservations)
	for _, r := range b.reservations {
		r.expiresNS, r.expiredNS = math.MinInt64, math.MaxInt64
		if r.known && b.clockKnown && !b.clock.jumped() {
			r.expiresNS, r.expiredNS = b.clock.inLab(r.ExpiresUS)
		}
	}
}
