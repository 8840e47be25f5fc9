package mysql

import (
	"context"
	"errors"
	"time"

	"stock/internal/monotonic"
	"stock/internal/stock"
	"stock/internal/stock/retry"
	"stock/internal/stock/share"
)

const (
	// sweepInterval is the longest pause between two searches for expired reservations, and so about how long units
	// that nobody asks for may be overdue.
	sweepInterval = time.Second
	// sweepPause is the pause after a sweep, which may have passed over items whose rows were locked.
	sweepPause = 100 * time.Millisecond
	// sweepLimit bounds the number of items whose rows one transaction locks.
	sweepLimit = 100
)

// Sweep implements stock.Reserver: it sweeps whenever a reservation expires, until ctx ends. It looks once a second for
// reservations that others have made meanwhile. It logs the first of several failures.
//
// Every replica sweeps, so that it does not matter which of them is alive. If two find the same reservations, the
// second waits for the rows of their items, and then finds that nothing is left to do.
func (s *reserve) Sweep(ctx context.Context) {
	failed := false
	for ctx.Err() == nil {
		next, err := s.nextExpiry(ctx)
		if err == nil && next <= 0 {
			err = s.sweep(ctx)
			next = sweepPause
		}
		if err != nil {
			next = sweepInterval
			if !failed && ctx.Err() == nil {
				s.log.Warn("units of expired reservations are not put back: trying again", "error", err)
			}
		}
		failed = err != nil
		_ = monotonic.Sleep(ctx, min(next, sweepInterval))
	}
}

// nextExpiry returns the time until the next reservation expires; if there is none, a time longer than sweepInterval.
func (s *reserve) nextExpiry(ctx context.Context) (time.Duration, error) {
	var micros int64
	err := s.store.get(ctx, share.Upkeep, &micros, "SELECT COALESCE("+
		"TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), MIN(expires_at)), ?) "+
		"FROM reservation FORCE INDEX (reservation_state) WHERE state = 'held'", (2 * sweepInterval).Microseconds())
	return time.Duration(min(micros, time.Minute.Microseconds())) * time.Microsecond, err
}

// sweep puts back what has expired, in ascending order of the items. It waits for the locked row of an item for a
// second, and then leaves the item for the next search, so that the other items do not wait for long.
func (s *reserve) sweep(ctx context.Context) error {
	ctx = stock.LimitWait(ctx, rowWaitUnit)
	last := int64(0)
	for {
		var items []int64
		err := s.store.use(ctx, []int64{share.Upkeep}, func(conn *conn) error {
			return conn.SelectContext(ctx, &items, "SELECT goods_id FROM reservation "+
				"FORCE INDEX (reservation_state) WHERE state = 'held' AND "+hasLapsed+" AND goods_id > ? "+
				"GROUP BY goods_id ORDER BY goods_id LIMIT ?", last, sweepLimit)
		})
		if err != nil || len(items) == 0 {
			return err
		}
		if err := s.sweepItems(ctx, items); err != nil {
			return err
		}
		last = items[len(items)-1]
	}
}

// sweepItems puts back what has expired of some items, together, or of each by itself if one is locked.
func (s *reserve) sweepItems(ctx context.Context, items []int64) error {
	for attempt := 1; ; attempt++ {
		ended, err := s.end(ctx, []int64{share.Upkeep}, items, func(tx Tx) ([]reservationRow, error) {
			return takeBack(ctx, tx, items)
		})
		switch {
		case isRolledBack(err) && retry.BackOff(ctx, attempt) == nil:
			continue
		case errors.Is(err, stock.ErrBusy) && len(items) > 1:
			for _, item := range items {
				if err := s.sweepItems(ctx, []int64{item}); err != nil {
					return err
				}
			}
			return nil
		case errors.Is(err, stock.ErrBusy):
			return nil // the next search finds it again
		case err != nil:
			return err
		}
		s.count(stock.Expired, ended)
		if len(ended) < lapsedLimit {
			return nil
		}
	}
}
