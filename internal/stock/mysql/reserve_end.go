package mysql

import (
	"context"
	"errors"
	"fmt"
	"time"

	"stock/internal/stock"
	"stock/internal/stock/batching"
	"stock/internal/stock/retry"
	"stock/internal/stock/share"
)

// confirmation is what a confirmation asks for in addition to a stock.Request, and what becomes of it.
type confirmation struct {
	id   stock.ReservationID
	read bool // return the row, too
	row  *reservationRow
}

// Confirm implements stock.Reserver.
func (s *reserve) Confirm(ctx context.Context, id stock.ReservationID) (stock.Reservation, error) {
	row, err := s.confirm(ctx, id, true)
	if errors.Is(err, stock.ErrReservationExpired) {
		if row, err = s.endLapsed(ctx, row); err == nil {
			err = row.refuseConfirm(id)
		}
	}
	return row.reservation(), err
}

// confirm joins the batch of confirmations, even if the request waits less than others: it has the units already, and
// waits for no item. Without read, the row may be nil.
func (s *reserve) confirm(ctx context.Context, id stock.ReservationID, read bool) (*reservationRow, error) {
	if _, limited := stock.WaitLimit(ctx); limited {
		ctx = stock.LimitWait(ctx, s.store.wait) // the limit of the first request would be that of its batch
	}
	c := &confirmation{id: id, read: read}
	_, err := s.confirms.Do(ctx, stock.Request{GoodsID: share.Reservations}, c)
	return c.row, err
}

// confirmSQL confirms those of some reservations that are held.
const confirmSQL = "UPDATE reservation FORCE INDEX (PRIMARY) SET state = 'confirmed', ended_at = UTC_TIMESTAMP(6) " +
	"WHERE state = 'held' AND NOT " + hasLapsed + " AND id IN "

// tryConfirms confirms all reservations of a batch that are held, in one statement. If that is not all of them, or if
// somebody asks for the rows, a second statement tells what became of each.
func (s *reserve) tryConfirms(ctx context.Context, conn *conn, b *batching.Batch) error {
	read := false
	seen := make(map[stock.ReservationID]bool, len(b.Undecided))
	ids := make([]stock.ReservationID, 0, len(b.Undecided))
	for _, m := range b.Undecided {
		c := m.Detail.(*confirmation)
		read = read || c.read
		if !seen[c.id] {
			seen[c.id] = true
			ids = append(ids, c.id)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	confirmed, err := conn.exec(ctx, confirmSQL+list(len(ids)), idArgs(ids)...)
	if err != nil {
		return err
	}
	s.ended[stock.Confirmed].Add(confirmed.Rows)
	if confirmed.Rows == int64(len(ids)) && !read {
		return nil
	}
	found, err := findReservations(ctx, conn, ids...)
	if err != nil {
		return fmt.Errorf("%w: some reservations were confirmed, but reading them failed: %v", stock.ErrUnknown, err)
	}
	for _, m := range b.Undecided {
		c := m.Detail.(*confirmation)
		c.row = found[c.id]
		if err := c.row.refuseConfirm(c.id); err != nil {
			m.Refuse(err)
		}
	}
	return nil
}

// refuseConfirm returns nil if the reservation is confirmed, and otherwise why it is not. r is nil if there is no such
// reservation.
func (r *reservationRow) refuseConfirm(id stock.ReservationID) error {
	if r == nil {
		return unknownReservation(id)
	}
	switch held := r.reservation(); held.State {
	case stock.Confirmed:
		return nil
	case stock.Cancelled:
		return fmt.Errorf("%w: %v, at %v", stock.ErrReservationCancelled, id, held.Ended)
	case stock.Expired:
		return fmt.Errorf("%w: %v, at %v", stock.ErrReservationExpired, id, held.Expires)
	}
	return fmt.Errorf("%w: the clock of MySQL was set back: confirm reservation %v again", stock.ErrBusy, id)
}

func unknownReservation(id stock.ReservationID) error {
	return fmt.Errorf("%w: %v", stock.ErrUnknownReservation, id)
}

// Cancel implements stock.Reserver.
func (s *reserve) Cancel(ctx context.Context, id stock.ReservationID) (stock.Reservation, error) {
	row, err := s.find(ctx, id)
	for err == nil && row.reservation().State == stock.Held {
		var ended []reservationRow
		if ended, err = s.endOne(ctx, row, stock.Cancelled, "NOT "+hasLapsed); err != nil {
			break
		}
		if len(ended) > 0 {
			row.State, row.Ended = stock.Cancelled, ended[0].Ended
			return row.reservation(), nil
		}
		// Nothing was cancelled, so the reservation has ended meanwhile: read how.
		row, err = s.find(ctx, id)
	}
	if err != nil {
		return stock.Reservation{}, err
	}
	held := row.reservation()
	if held.State == stock.Confirmed {
		return stock.Reservation{}, fmt.Errorf("%w: %v, at %v", stock.ErrReservationConfirmed, id, held.Ended)
	}
	return held, nil
}

// Reservation implements stock.Reserver.
func (s *reserve) Reservation(ctx context.Context, id stock.ReservationID) (stock.Reservation, error) {
	row, err := s.find(ctx, id)
	return row.reservation(), err
}

// find reads a reservation as it is now.
func (s *reserve) find(ctx context.Context, id stock.ReservationID) (*reservationRow, error) {
	row, err := s.read(ctx, id)
	if err != nil {
		return nil, err
	}
	return s.endLapsed(ctx, row)
}

// endLapsed ends a reservation that is held although its time has passed, and returns it as it is now. A confirmation
// that the server began in time may be under way, and nobody must be told that a reservation has expired that is
// confirmed in the end.
func (s *reserve) endLapsed(ctx context.Context, row *reservationRow) (*reservationRow, error) {
	if row.State != stock.Held || !row.Lapsed {
		return row, nil
	}
	if _, err := s.endOne(ctx, row, stock.Expired, hasLapsed); err != nil {
		return nil, err
	}
	return s.read(ctx, stock.ReservationID(row.ID))
}

func (s *reserve) read(ctx context.Context, id stock.ReservationID) (row *reservationRow, err error) {
	err = s.store.use(ctx, []int64{share.Reservations}, func(conn *conn) error {
		found, err := findReservations(ctx, conn, id)
		if err != nil {
			return err
		}
		if row = found[id]; row == nil {
			return unknownReservation(id)
		}
		return nil
	})
	return row, err
}

// endOne ends a reservation if it is held and fulfils the condition, and returns it then. It tries again if the server
// rolled it back because of a conflict.
func (s *reserve) endOne(
	ctx context.Context, row *reservationRow, state stock.ReservationState, condition string,
) (ended []reservationRow, err error) {
	err = retry.While(ctx, s.store.wait, isRolledBack, func() error {
		ended, err = s.end(ctx, []int64{share.Reservations}, []int64{row.GoodsID}, func(tx Tx) ([]reservationRow, error) {
			return endHeld(ctx, tx, []stock.ReservationID{stock.ReservationID(row.ID)}, state, condition)
		})
		return err
	})
	s.count(state, ended)
	return ended, err
}

// end locks the rows of items, ends reservations of these items, and puts their units back, in one transaction. It
// returns what choose has ended.
func (s *reserve) end(
	ctx context.Context, shares, items []int64, choose func(Tx) ([]reservationRow, error),
) (ended []reservationRow, err error) {
	err = s.store.InTx(ctx, shares, ReadCommitted, func(tx Tx) error {
		epochs, err := LockItems(ctx, tx, items, "")
		if err != nil {
			return err
		}
		if ended, err = choose(tx); err != nil {
			return err
		}
		return giveBack(ctx, tx, ended, epochs)
	})
	if err != nil {
		return nil, err
	}
	return ended, nil
}

// count counts reservations that have ended, and how late the expired ones were.
func (s *reserve) count(state stock.ReservationState, ended []reservationRow) {
	s.ended[state].Add(int64(len(ended)))
	if state != stock.Expired {
		return
	}
	for _, r := range ended {
		s.lag.Add(r.Ended.Int64 - r.Expires)
	}
}

// ReservationStats implements stock.Reserver.
func (s *reserve) ReservationStats(ctx context.Context) (stock.ReservationStats, error) {
	stats := stock.ReservationStats{Ended: map[stock.ReservationState]int64{}}
	for state, n := range s.ended {
		stats.Ended[state] = n.Load()
	}
	stats.Lag = time.Duration(s.lag.Load()) * time.Microsecond
	var present struct{ Units, Overdue int64 }
	err := s.store.get(ctx, share.Upkeep, &present, "SELECT COALESCE(SUM(count), 0) AS units, "+
		"COALESCE(TIMESTAMPDIFF(MICROSECOND, MIN(expires_at), UTC_TIMESTAMP(6)), 0) AS overdue "+
		"FROM reservation FORCE INDEX (reservation_state) WHERE state = 'held'")
	stats.HeldUnits = present.Units
	stats.Overdue = time.Duration(max(present.Overdue, 0)) * time.Microsecond
	return stats, err
}
