package verify

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"stock/loadtest/internal/history"
)

// countReservations counts what every verdict on reservations shows. It finds nothing.
func (b *books) countReservations() (r result) {
	f := &r.figures.Reservations
	for _, held := range b.reservations {
		if !held.known {
			continue
		}
		f.Held++
		switch {
		case held.wasTold(history.Confirmed):
			f.Confirmed++
		case held.wasTold(history.Cancelled):
			f.Cancelled++
		case !held.maybeConfirmed():
			f.Expired++
		}
	}
	return r
}

// heldAtOnce checks that no more units are held or sold at the same time than there were: otherwise some were given
// back twice. A reservation certainly has its units from its answer until somebody asks to cancel it or its time ends.
func (b *books) heldAtOnce() (r result) {
	for _, it := range b.items {
		var changes tally
		for _, held := range b.reservations {
			if held.GoodsID != it.id || !held.known {
				continue
			}
			changes.add(held.ReceivedNS, held.Count)
			if held.wasTold(history.Confirmed) {
				continue
			}
			changes.add(max(held.ReceivedNS, min(held.expiresNS, held.first(history.Cancel))), -held.Count)
		}
		if most := changes.most(); most > it.initial {
			r.findf("item %d: %d units were held or sold at the same time, and there are %d", it.id, most, it.initial)
			if beyond := most - it.initial - it.oversold(); beyond > 0 {
				r.figures.Oversold += beyond
			}
		}
	}
	return r
}

// most returns the most units that there are at any time. What comes back comes before what is taken at the same time.
func (t *tally) most() (most int64) {
	slices.SortFunc(t.entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.units, b.units))
	})
	units := int64(0)
	for _, e := range t.entries {
		units += e.units
		most = max(most, units)
	}
	return most
}

// eachReservation makes a check of all reservations out of one that says what is wrong with one; empty: nothing. figure
// counts those; it may be nil.
func eachReservation(wrong func(*reservation) string, figure func(*Figures) *int64) func(*books) result {
	return func(b *books) (r result) {
		for _, held := range b.reservations {
			if !held.known {
				continue
			}
			if text := wrong(held); text != "" {
				r.findf("item %d: %s", held.GoodsID, text)
			}
		}
		if figure != nil {
			*figure(&r.figures) = r.findings
		}
		return r
	}
}

func endedTwice(f *Figures) *int64        { return &f.Reservations.EndedTwice }
func endedEarly(f *Figures) *int64        { return &f.Reservations.EndedEarly }
func lateConfirmations(f *Figures) *int64 { return &f.Reservations.LateConfirmations }
func wrongStates(f *Figures) *int64       { return &f.Reservations.WrongStates }
func differentAnswers(f *Figures) *int64  { return &f.DifferentAnswers }

// endsTwice finds the first answer that tells of another end than the one before.
func (r *reservation) endsTwice() string {
	for _, e := range r.told {
		if first := r.told[0]; e.state != first.state {
			return fmt.Sprintf("reservation %s has ended twice: request %s was told that it is %s, and request %s that it is %s",
				r.Reservation, first.RequestID, first.state, e.RequestID, e.state)
		}
	}
	return ""
}

func (r *reservation) isGone() string {
	if r.wasTold(gone) {
		return fmt.Sprintf("reservation %s was granted, and the service does not know it", r.Reservation)
	}
	return ""
}

// confirmedLate finds a confirmation that nobody had asked for before the time ended.
func (r *reservation) confirmedLate() string {
	var late int64 // nanoseconds
	if asked := r.first(history.Confirm); asked != math.MaxInt64 && r.expiredNS != math.MaxInt64 {
		late = asked - r.expiredNS
	}
	for _, e := range r.told {
		if e.state == history.Confirmed {
			late = max(late, (e.EndedUS-r.ExpiresUS)*1000) // by its own words
		}
	}
	if late <= 0 || !r.wasTold(history.Confirmed) {
		return ""
	}
	return fmt.Sprintf("reservation %s was confirmed %.1f ms after its time had ended", r.Reservation, float64(late)/1e6)
}

// endsEarly finds an answer that it has expired while there was time left.
func (r *reservation) endsEarly() string {
	for _, e := range r.told {
		if e.state == history.Expired && e.ReceivedNS < r.expiresNS {
			return fmt.Sprintf("reservation %s was called expired with %.0f ms left (request %s)", r.Reservation,
				float64(r.expiresNS-e.ReceivedNS)/1e6, e.RequestID)
		}
	}
	return ""
}

// wrongState finds the first answer that tells of an end without a request before that may have caused it, or that it
// is held when it had ended.
func (r *reservation) wrongState() string {
	ended := int64(math.MaxInt64) // when somebody was told that it had ended
	if len(r.told) > 0 {
		ended = r.told[0].ReceivedNS
	}
	for _, c := range r.calls {
		state := endTold(c)
		if c.Outcome == history.Done && c.State == history.Held {
			state = history.Held
		}
		var impossible bool
		switch state {
		case history.Held:
			impossible = c.SentNS > ended || c.SentNS > r.expiredNS
		case history.Confirmed:
			impossible = r.first(history.Confirm) >= c.ReceivedNS
		case history.Cancelled:
			impossible = r.first(history.Cancel) >= c.ReceivedNS
		}
		if c.Outcome == history.Done {
			impossible = impossible || c.Kind == history.Confirm && state != history.Confirmed ||
				c.Kind == history.Cancel && state != history.Cancelled && state != history.Expired
		}
		if impossible {
			return fmt.Sprintf("request %s was told that reservation %s is %s, which cannot be", c.RequestID, r.Reservation,
				state)
		}
	}
	return ""
}

// changes finds answers that tell different times, and a time to live that is not the one that was asked for.
func (r *reservation) changes() string {
	ended := int64(0)
	for _, c := range r.calls {
		if c.Outcome != history.Done {
			continue
		}
		if ended == 0 {
			ended = c.EndedUS
		}
		if c.CreatedUS != r.CreatedUS || c.ExpiresUS != r.ExpiresUS || c.EndedUS != 0 && c.EndedUS != ended {
			return fmt.Sprintf("requests %s and %s were told different times of reservation %s", r.RequestID, c.RequestID,
				r.Reservation)
		}
	}
	if lasts := r.ExpiresUS - r.CreatedUS; lasts != r.TTLMS*1000 {
		return fmt.Sprintf("reservation %s lasts %d µs, and %d ms were asked for", r.Reservation, lasts, r.TTLMS)
	}
	return ""
}

// oneHoldPerKey finds holds with a key that became several reservations.
func (b *books) oneHoldPerKey() (r result) {
	first := map[string]*reservation{}
	for _, held := range b.reservations {
		if other := first[held.Name]; held.known && other != nil {
			r.findf("item %d: hold %s was made twice, as reservations %s and %s", held.GoodsID, held.Name,
				other.Reservation, held.Reservation)
		} else if held.known {
			first[held.Name] = held
		}
	}
	r.figures.Duplicates = r.findings
	return r
}

// free returns the least number of units that were free at any time during a request. Units of a reservation that is
// not confirmed are free once its time has ended, even if the service has not put them back.
func (b *books) free(it *item, e effect) int64 {
	if !it.finalRead {
		return 0
	}
	free := it.initial - it.leaked()
	for _, held := range b.reservations {
		if held.GoodsID == it.id && held.sentNS <= e.until && !held.backBefore(e.since) {
			free -= held.Count
		}
	}
	for i := range b.ops { // a deduction that failed may have held its units for a while
		op := &b.ops[i] // without a copy: there are many
		if op.Kind == history.Deduct && op.GoodsID == it.id && op.Outcome != history.SoldOut && op.SentNS <= e.until {
			free -= op.Count
		}
	}
	return free
}

// backBefore reports whether the units were certainly free again before a time.
func (r *reservation) backBefore(before int64) bool {
	if r.wasTold(history.Confirmed) || r.maybeConfirmed() {
		return false
	}
	return r.expiredNS < before || slices.ContainsFunc(r.told, func(e ending) bool {
		return e.state == history.Cancelled && e.ReceivedNS < before
	})
}
