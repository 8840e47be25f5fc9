package mutants

import (
	"context"
	"strings"

	"stock/internal/stock"
)

// Texts of the statements of reserve.
const (
	isHeld    = "AND state = 'held' "
	hasLapsed = "expires_at <= UTC_TIMESTAMP(6)"
	confirms  = "SET state = 'confirmed'"
	expires   = isHeld + "AND " + hasLapsed + " FOR UPDATE"
	givesBack = "stock = stock + CASE goods_id"
	// recordsHolds inserts holds. Of the values of each, the second is the key.
	recordsHolds = "INSERT INTO reservation"
	holdColumns  = 10
)

var reservationBugs = []Mutant{
	mutant("reserve-confirms-expired", "reserve",
		"The units of an expired reservation are given back, but it can still be confirmed.",
		rewrite(1, "state = 'held' AND NOT "+hasLapsed+" AND id IN", "state IN ('held', 'expired') AND id IN")),
	mutant("reserve-cancels-twice", "reserve",
		"A reservation that is cancelled a second time gives its units back again.",
		cancelTwice),
	mutant("reserve-keeps-expired", "reserve", "The units of expired reservations are never given back.",
		rewrite(1, expires, "AND FALSE FOR UPDATE")),
	mutant("reserve-gives-back-more", "reserve", "1 time in 10 that units are given back, there is one more.",
		onEvery(10, givesBack, adding(1, 1))),
	mutant("reserve-expires-early", "reserve", "Reservations expire 100 ms too early.",
		rewrite(1, "state = 'held' AND "+hasLapsed,
			"state = 'held' AND expires_at <= UTC_TIMESTAMP(6) + INTERVAL 100000 MICROSECOND")),
	mutant("reserve-forgets-keys", "reserve", "The keys of holds are not recorded.",
		onEvery(1, recordsHolds, func(s *statement) {
			for i := range strings.Count(s.text, "(?") {
				s.set(holdColumns*i+1, nil)
			}
		})),
}

// cancelTwice gives the units back once more when a reservation that is cancelled already is to be cancelled.
func cancelTwice(p *plan) {
	var deps stock.Deps
	p.deps = func(d *stock.Deps) { deps = *d }
	p.cancel = func(ctx context.Context, id stock.ReservationID, next endFunc) (stock.Reservation, error) {
		before, err := p.reserver.Reservation(ctx, id)
		if err == nil && before.State == stock.Cancelled {
			p.strikes.Add(1)
			_, err = deps.MySQL.ExecContext(ctx,
				"UPDATE good_stock SET stock = stock + ?, version = version + 1 WHERE goods_id = ?",
				before.Count, before.GoodsID)
		}
		if err != nil {
			return stock.Reservation{}, err
		}
		return next(ctx, id)
	}
}
