package httpapi

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	"stock/internal/stock"
)

// hold is a request to hold units of one item, as JSON.
type hold struct {
	deduction
	TTLMS int64 `json:"ttl_ms"`
}

// reservation is the part of every reply that describes a reservation.
type reservation struct {
	ID        string                 `json:"id"`
	State     stock.ReservationState `json:"state"`
	GoodsID   int64                  `json:"goods_id"`
	Count     int64                  `json:"count"`
	CreatedAt string                 `json:"created_at"`
	ExpiresAt string                 `json:"expires_at"`
	EndedAt   string                 `json:"ended_at,omitempty"`
}

type holdReply struct {
	reservation
	Remaining *int64 `json:"remaining,omitempty"` // nil for a replay
	receipt
}

type reservationReply struct {
	reservation
	Strategy  string      `json:"strategy"`
	Store     stock.Store `json:"store"`
	Replica   string      `json:"replica"`
	RequestID string      `json:"request_id"`
}

var (
	holding = details{
		stock.ErrUnknown: "The hold was sent, but no result arrived: units may or may not be held. Send the request " +
			"again with its Idempotency-Key; without a key, the units come back when the time of the hold has passed.",
	}
	ending = details{
		stock.ErrUnknown: "The request was sent, but no result arrived: the reservation may or may not have ended. " +
			"Send the request again, which tells what happened, or read the reservation.",
		stock.ErrBusy: "The service gave up waiting; the reservation is as it was. Try again, before it expires.",
		stock.ErrUnavailable: "A server that the strategy needs does not answer; the reservation is as it was. " +
			"Try again, before it expires.",
	}
)

// reserve answers POST /stock/reservations.
func (c *call) reserve() (any, error) {
	var h hold
	if err := readOnlyJSON(c.r, maxBody, &h); err != nil {
		return nil, err
	}
	reserver, on, err := c.reserver(h.terms)
	if err := cmp.Or(err, checkLine(h.GoodsID, h.Count)); err != nil {
		return nil, err
	}
	if h.TTLMS < stock.MinTTL.Milliseconds() || h.TTLMS > c.api.MaxTTL.Milliseconds() {
		return nil, describe(errMalformed, "ttl_ms is %d or missing: it must be %d to %d",
			h.TTLMS, stock.MinTTL.Milliseconds(), c.api.MaxTTL.Milliseconds())
	}
	ctx, cancel := c.limited()
	defer cancel()
	held, done, err := reserver.Hold(ctx, stock.HoldRequest{
		Request: stock.Request{GoodsID: h.GoodsID, Count: int(h.Count), Key: c.key, Hold: c.hold},
		TTL:     time.Duration(h.TTLMS) * time.Millisecond,
	})
	countOperation(c.api.metrics.reservations, "hold", false, err)
	c.tellReplay(done.Replayed)
	if err != nil {
		return nil, c.describe(holding.describe(err), h.GoodsID, on)
	}
	reply := &holdReply{reservation: newReservation(held), receipt: c.receipt(on, done)}
	if !done.Replayed {
		reply.Remaining = &done.Remaining
	}
	return reply, nil
}

// reserver finds the strategy that a request names, or else the first of the catalogue that takes reservations.
func (c *call) reserver(t terms) (stock.Reserver, stock.Store, error) {
	if t.Strategy = cmp.Or(t.Strategy, c.api.reserver); t.Strategy == "" {
		return nil, "", describe(stock.ErrUnavailable,
			"no strategy that takes reservations is available here; GET /strategies tells what each needs")
	}
	if err := c.accept(t); err != nil {
		return nil, "", err
	}
	reserver, on, err := c.api.Strategies.ResolveReservations(c.offer.Name, t.Store)
	if err != nil {
		err = c.describe(err, 0, on)
	}
	return reserver, on, err
}

// onReservation makes a handler of a method that reads or ends a reservation.
func (a *API) onReservation(
	operation string, method func(stock.Reserver, context.Context, stock.ReservationID) (stock.Reservation, error),
) http.HandlerFunc {
	return a.handle(http.StatusOK, func(c *call) (any, error) { return c.onReservation(operation, method) })
}

func (c *call) onReservation(
	operation string, method func(stock.Reserver, context.Context, stock.ReservationID) (stock.Reservation, error),
) (*reservationReply, error) {
	var d deduction
	if err := cmp.Or(refuseBody(c.r), d.readQuery(c.r.URL.RawQuery, "strategy", "store")); err != nil {
		return nil, err
	}
	reserver, on, err := c.reserver(d.terms)
	if err != nil {
		return nil, err
	}
	id, err := stock.ParseReservationID(chi.URLParam(c.r, "id"))
	if err != nil {
		return nil, err
	}
	ctx, cancel := c.limited()
	defer cancel()
	found, err := method(reserver, ctx, id)
	countOperation(c.api.metrics.reservations, operation, false, err)
	if err != nil {
		return nil, ending.describe(err)
	}
	return &reservationReply{
		reservation: newReservation(found),
		Strategy:    c.offer.Name,
		Store:       on,
		Replica:     c.api.Replica,
		RequestID:   requestID(c.w),
	}, nil
}

func newReservation(r stock.Reservation) reservation {
	reply := reservation{
		ID:        r.ID.String(),
		State:     r.State,
		GoodsID:   r.GoodsID,
		Count:     int64(r.Count),
		CreatedAt: microseconds(r.Created),
		ExpiresAt: microseconds(r.Expires),
	}
	if !r.Ended.IsZero() {
		reply.EndedAt = microseconds(r.Ended)
	}
	return reply
}

// microseconds writes a time as in RFC 3339, always with six digits.
func microseconds(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z") }
