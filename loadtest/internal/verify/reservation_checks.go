package verify

import (
	"cmp"
	"math"
	"slices"

	"stock/loadtest/internal/history"
)

// reservationChecks is everything that a run of reservations is judged by, in the order of the evidence.
var reservationChecks = []check{
	{name: "sums", look: eachItem((*item).sums)},
	{name: "reservation count", look: (*books).countReservations},
	{name: "resold", look: (*books).resold},
	{name: "set", means: Wrong, look: (*books).setAsAsked},
	{name: "one end", means: Wrong, look: (*books).endedOnce},
	{name: "late confirmations", means: Wrong, look: (*books).lateConfirmations},
	{name: "early ends", means: Wrong, look: (*books).endedEarly},
	{name: "states", means: Wrong, look: (*books).statesFollow},
	{name: "one hold per key", means: Wrong, look: (*books).oneHoldPerKey},
	{name: "same answers", means: Wrong, look: (*books).sameAnswers},
	{name: "call replies", means: Wrong, look: (*books).repliesMatch},
	{name: "conservation", means: Wrong, look: eachItem((*item).conserved)},
	{name: "held at once", means: Wrong, look: (*books).heldAtOnce},
	{name: "undersold", means: Wrong, look: (*books).refusedWhileFree},

	{name: "complete", means: Inconclusive, look: (*books).complete},
	{name: "holds", applies: isLoad, means: Inconclusive, look: (*books).enoughHolds},
	{name: "scarcity", applies: isScarce, means: Inconclusive, look: (*books).scarcity},
	{name: "unknown", applies: isLoad, means: Inconclusive, look: (*books).fewUnknownCalls},
	{name: "busy", applies: isLoad, means: Inconclusive, look: (*books).fewBusyCalls},
	{name: "rejected", means: Inconclusive, look: (*books).noCallRejected},
	{name: "clocks", means: Inconclusive, look: (*books).callClocks},
	{name: "situations", applies: isJudgedOnly, means: Inconclusive, look: (*books).situations},

	{name: "witness", look: (*books).witness},
}

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

// conserved checks that the units in stock and those of confirmed reservations add up to the initial stock, when every
// other reservation has ended.
func (it *item) conserved() (r result) {
	oversold, lost, ghosts := it.oversold(), it.lost(), it.leaked()
	r.figures = Figures{Oversold: oversold, LostUpdates: lost, Leaked: ghosts}
	r.figures.Reservations.GhostUnits = ghosts
	if it.finalRead {
		r.figures.Good = max(0, min(it.soldUnits-oversold, it.initial-max(it.final, 0)))
	}
	if oversold > 0 {
		r.findf("item %d: units confirmed beyond the stock: %d (%d confirmed, of %d)",
			it.id, oversold, it.soldUnits, it.initial)
	}
	if lost > 0 {
		r.findf("item %d: units given back that were sold, or given back twice: %d (%d - %d confirmed = %d should be "+
			"left, not %d)", it.id, lost, it.initial, it.soldUnits, it.initial-it.soldUnits, it.final)
	}
	if ghosts > 0 {
		r.findf("item %d: ghost holds: units gone that nobody bought, after every reservation has ended: %d "+
			"(%d gone, %d confirmed, at most %d more in doubt)",
			it.id, ghosts, it.initial-it.final, it.soldUnits, it.unknownUnits)
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
			expires, _ := b.expiry(held)
			changes.add(max(held.ReceivedNS, min(expires, held.first(history.Cancel))), -held.Count)
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

// endedOnce checks that nobody was told of another end of a reservation than others, and that every reservation that
// was granted exists.
func (b *books) endedOnce() (r result) {
	var found examples
	for _, held := range b.reservations {
		for _, e := range held.told {
			if first := held.told[0]; e.state != first.state {
				found.addf("item %d: reservation %s has ended twice: request %s was told that it is %s, and request %s that "+
					"it is %s", held.GoodsID, held.Reservation, first.RequestID, first.state, e.RequestID, e.state)
				break
			}
		}
		if held.wasTold(gone) {
			r.findf("item %d: reservation %s was granted, and the service does not know it",
				held.GoodsID, held.Reservation)
		}
	}
	r.findings = append(r.findings, found.findings("%d reservations have ended twice", found.count)...)
	r.figures.Reservations.EndedTwice = found.count
	return r
}

// lateConfirmations finds reservations that were confirmed although nobody had asked for it before their time ended.
func (b *books) lateConfirmations() (r result) {
	var found examples
	for _, held := range b.reservations {
		_, expired := b.expiry(held)
		var late int64 // nanoseconds
		if asked := held.first(history.Confirm); asked != math.MaxInt64 && expired != math.MaxInt64 {
			late = asked - expired
		}
		for _, e := range held.told {
			if e.state == history.Confirmed {
				late = max(late, (e.EndedUS-held.ExpiresUS)*1000) // by its own words
			}
		}
		if late > 0 && held.wasTold(history.Confirmed) {
			found.addf("item %d: reservation %s was confirmed %.1f ms after its time had ended", held.GoodsID,
				held.Reservation, float64(late)/1e6)
		}
	}
	r.findings = found.findings("%d reservations were confirmed after their time had ended", found.count)
	r.figures.Reservations.LateConfirmations = found.count
	return r
}

// endedEarly finds reservations that were called expired while they had time left.
func (b *books) endedEarly() (r result) {
	var found examples
	for _, held := range b.reservations {
		expires, _ := b.expiry(held)
		for _, e := range held.told {
			if e.state == history.Expired && e.ReceivedNS < expires {
				found.addf("item %d: reservation %s was called expired with %.0f ms left (request %s)", held.GoodsID,
					held.Reservation, float64(expires-e.ReceivedNS)/1e6, e.RequestID)
				break
			}
		}
	}
	r.findings = found.findings("%d reservations were called expired while they had time left", found.count)
	r.figures.Reservations.EndedEarly = found.count
	return r
}

// statesFollow checks that nobody was told of an end without a request before that may have caused it, nor that a
// reservation is held that had ended.
func (b *books) statesFollow() (r result) {
	var found examples
	for _, held := range b.reservations {
		if !held.known {
			continue
		}
		if wrong := b.wrongState(held); wrong != nil {
			found.addf("item %d: request %s was told that reservation %s is %s, which cannot be", held.GoodsID,
				wrong.RequestID, held.Reservation, wrong.state)
		}
	}
	r.findings = found.findings("%d reservations were told to be in a state that cannot be", found.count)
	r.figures.Reservations.WrongStates = found.count
	return r
}

// wrongState returns the first answer that tells a state which cannot be; nil: none does.
func (b *books) wrongState(held *reservation) *ending {
	_, expired := b.expiry(held)
	ended := int64(math.MaxInt64) // when somebody was told that it had ended
	if len(held.told) > 0 {
		ended = held.told[0].ReceivedNS
	}
	for _, c := range held.calls {
		state := endTold(c)
		if c.Outcome == history.Done && c.State == history.Held {
			state = history.Held
		}
		var impossible bool
		switch state {
		case history.Held:
			impossible = c.SentNS > ended || c.SentNS > expired
		case history.Confirmed:
			impossible = held.first(history.Confirm) >= c.ReceivedNS
		case history.Cancelled:
			impossible = held.first(history.Cancel) >= c.ReceivedNS
		}
		if c.Outcome == history.Done {
			impossible = impossible || c.Kind == history.Confirm && state != history.Confirmed ||
				c.Kind == history.Cancel && state != history.Cancelled && state != history.Expired
		}
		if impossible {
			return &ending{c, state}
		}
	}
	return nil
}

// asked reports whether a request of a kind was sent before a time.
func (r *reservation) asked(kind string, before int64) bool {
	return slices.ContainsFunc(r.calls, func(c *history.Call) bool { return c.Kind == kind && c.SentNS < before })
}

// oneHoldPerKey finds holds with a key that became several reservations.
func (b *books) oneHoldPerKey() (r result) {
	first := map[string]*reservation{}
	var found examples
	for _, held := range b.reservations {
		if other := first[held.Name]; held.known && other != nil {
			found.addf("item %d: hold %s was made twice, as reservations %s and %s", held.GoodsID, held.Name,
				other.Reservation, held.Reservation)
		} else if held.known {
			first[held.Name] = held
		}
	}
	r.findings = found.findings("%d holds were made twice", found.count)
	r.figures.Duplicates = found.count
	return r
}

// sameAnswers checks that all answers tell the same times of a reservation, and that it lasts as long as was asked for.
func (b *books) sameAnswers() (r result) {
	var found examples
	for _, held := range b.reservations {
		ended := int64(0)
		for _, c := range held.calls {
			if c.Outcome != history.Done {
				continue
			}
			if ended == 0 {
				ended = c.EndedUS
			}
			if c.CreatedUS != held.CreatedUS || c.ExpiresUS != held.ExpiresUS || c.EndedUS != 0 && c.EndedUS != ended {
				found.addf("item %d: requests %s and %s were told different times of reservation %s", held.GoodsID,
					held.RequestID, c.RequestID, held.Reservation)
				break
			}
		}
		if lasts := held.ExpiresUS - held.CreatedUS; held.known && lasts != held.TTLMS*1000 {
			found.addf("item %d: reservation %s lasts %d µs, and %d ms were asked for", held.GoodsID, held.Reservation,
				lasts, held.TTLMS)
		}
	}
	r.findings = found.findings("the times of %d reservations are not what they should be", found.count)
	r.figures.DifferentAnswers = found.count
	return r
}

// repliesMatch finds replies that are unreadable or for something else.
func (b *books) repliesMatch() (r result) {
	var found examples
	for _, c := range b.calls {
		if c.Error == history.Mismatch {
			found.addf("request %s (%s) got a reply that is unreadable or for something else", c.RequestID, c.Kind)
		}
	}
	r.findings = found.findings("%d requests got a reply that is unreadable or for something else", found.count)
	return r
}

// refusedWhileFree finds the buyers who were refused although units were free, in any sequence of the requests. Units
// of a reservation that is not confirmed are free once its time has ended, even if the service has not put them back.
func (b *books) refusedWhileFree() (r result) {
	for _, it := range b.items {
		var found examples
		for _, e := range it.refused {
			left := max(b.free(it, e), e.Remaining) // by its own answer
			if left >= e.Count {
				found.addf("item %d: request %s wanted %d and was refused while at least %d were free",
					it.id, name(e.Op), e.Count, left)
			}
		}
		r.figures.Undersold += found.count
		r.findings = append(r.findings,
			found.findings("item %d: %d requests were refused while enough units were free", it.id, found.count)...)
	}
	return r
}

// free returns the least number of units that were free at any time during a request.
func (b *books) free(it *item, e effect) int64 {
	if !it.finalRead {
		return 0
	}
	free := it.initial - it.leaked()
	for _, held := range b.reservations {
		if held.GoodsID == it.id && held.sentNS <= e.until && !b.backBefore(held, e.since) {
			free -= held.Count
		}
	}
	for _, op := range b.ops { // one that failed may have held its units for a while
		if op.Kind == history.Deduct && op.GoodsID == it.id && op.Outcome != history.SoldOut && op.SentNS <= e.until {
			free -= op.Count
		}
	}
	return free
}

// backBefore reports whether the units of a reservation were certainly free again before a time.
func (b *books) backBefore(held *reservation, before int64) bool {
	if held.wasTold(history.Confirmed) || held.maybeConfirmed() {
		return false
	}
	_, expired := b.expiry(held)
	return expired < before || slices.ContainsFunc(held.told, func(e ending) bool {
		return e.state == history.Cancelled && e.ReceivedNS < before
	})
}
