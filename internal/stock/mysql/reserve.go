package mysql

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"stock/internal/stock"
	"stock/internal/stock/batching"
)

// reserve holds units in the table reservation until the buyer confirms, cancels, or lets the time pass (TCC: Pardon
// and Pautasso, "Atomic Distributed Transactions: a RESTful Design", WWW 2014). Deduct holds and confirms at once; with
// a key, it is one transaction.
//
// Holds of one item that wait in a replica share a transaction, as in batch: one INSERT of all reservations and one
// UPDATE of the stock. Confirmations of all items share one UPDATE, which touches no stock.
//
// The clock of MySQL alone decides whether the time of a reservation has passed. Every replica has a sweeper that puts
// expired units back. It need not be fast: a hold that finds too few units takes back the expired ones itself.
//
// A transaction that puts units back first locks the rows of the items, in ascending order, and then the reservations,
// by id. So there are no deadlocks, and a hold that has locked the item's row sees all of its expired reservations. A
// batch of holds adds its reservations, for which nobody waits, then locks the item, and adds its keys last. Only
// batches of different items that share several keys can deadlock: the server rolls one back, and that one tries again.
type reserve struct {
	*batching.Queue // of holds
	stock.Canceller // of deductions

	store    Store
	confirms *batching.Queue
	log      *slog.Logger

	ended map[stock.ReservationState]*atomic.Int64
	lag   atomic.Int64 // microseconds
}

const (
	// deductTTL is how long Deduct holds units that it is about to confirm, and so how long the units are gone if the
	// replica dies in between. A batch that is about to confirm may wait for a connection, and then for rows.
	deductTTL = 30 * time.Second
	// holdSlack is how much shorter than asked a hold may be.
	holdSlack = 100 * time.Millisecond
	// abandonWait is how long Deduct tries to cancel a hold that it could not confirm. A request with less than
	// minTimeLeft would be refused.
	abandonWait = minTimeLeft + time.Second
)

// NewReserve makes the strategy `reserve`.
func NewReserve(d stock.Deps) stock.Deducter {
	store := New(d)
	s := &reserve{
		Canceller: store, store: store, log: d.Log, ended: map[stock.ReservationState]*atomic.Int64{},
	}
	for _, state := range stock.EndStates {
		s.ended[state] = new(atomic.Int64)
	}
	s.Queue = newQueue(store, s.tryHolds)
	s.confirms = newQueue(store, s.tryConfirms)
	return s
}

// Deduct implements stock.Deducter. The receipt and its critical section are those of the hold.
func (s *reserve) Deduct(ctx context.Context, req stock.Request) (stock.Receipt, error) {
	if req.Key != "" {
		return s.store.Once(ctx, req, func() (stock.Receipt, error) { return s.deductOnce(ctx, req) })
	}
	row, receipt, err := s.hold(ctx, stock.HoldRequest{Request: req, TTL: deductTTL})
	if err != nil {
		return stock.Receipt{}, err
	}
	id := stock.ReservationID(row.ID)
	if _, err := s.confirm(ctx, id, false); err != nil {
		if err := s.abandon(ctx, id, err); err != nil {
			return stock.Receipt{}, err
		}
	}
	return receipt, nil
}

// deductOnce deducts as update does, and records the key. It holds nothing: a request that is sent again would take
// units from others until its key turns out to be taken. It takes back what has expired before it refuses.
func (s *reserve) deductOnce(ctx context.Context, req stock.Request) (stock.Receipt, error) {
	for {
		receipt, err := s.store.execDeduct(ctx, req, stock.Arrive(), deductSQL, req.Count, req.GoodsID, req.Count)
		if !errors.Is(err, errNoMatch) {
			return receipt, err
		}
		item := []int64{req.GoodsID}
		var units int64
		var lapsed bool
		err = s.store.use(ctx, item, func(conn *conn) error {
			units, lapsed, err = readLapsed(ctx, conn, req.GoodsID)
			return err
		})
		switch {
		case err != nil:
			return stock.Receipt{}, err
		case lapsed:
			ended, err := s.end(ctx, item, item, func(tx Tx) ([]reservationRow, error) { return takeBack(ctx, tx, item) })
			if err != nil {
				return stock.Receipt{}, err
			}
			s.count(stock.Expired, ended)
		case units < int64(req.Count):
			return stock.Receipt{}, soldOut(req, units)
		}
	}
}

// abandon cancels a hold that Deduct could not confirm. If that succeeds, nothing is deducted. If the hold turns out to
// be confirmed after all, there is no error. Otherwise the outcome is unknown.
func (s *reserve) abandon(ctx context.Context, id stock.ReservationID, failure error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abandonWait)
	defer cancel()
	switch _, err := s.Cancel(ctx, id); {
	case err == nil && errors.Is(failure, stock.ErrBusy):
		return failure
	case err == nil:
		return fmt.Errorf("%w: the units were held and not confirmed, and are back: %v", stock.ErrUnavailable, failure)
	case errors.Is(err, stock.ErrReservationConfirmed):
		return nil
	default:
		return fmt.Errorf("%w: the units are held, and neither confirmed nor cancelled: %v; %w",
			stock.ErrUnknown, failure, err)
	}
}
