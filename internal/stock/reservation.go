package stock

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"time"
)

// Limits of a HoldRequest. A service may accept less than MaxTTL.
const (
	MinTTL = 100 * time.Millisecond
	MaxTTL = 30 * 24 * time.Hour
)

// Reserver holds units of an item for a time. The buyer then confirms, cancels, or lets the reservation expire. A
// Deducter may be one.
//
// A reservation ends once: its units are sold, or they are back in the stock. One clock decides about its end, that of
// the server that keeps it. A reservation whose time has passed counts as expired at once, for every method.
//
// All errors are refusals or ErrUnknown, as those of Deduct. After ErrUnknown, the same call tells what happened: a
// Hold needs a Key for that, and without one its units come back when the time of the reservation has passed.
type Reserver interface {
	// Hold takes units out of the stock until the reservation ends. It refuses nobody as sold out while units of
	// expired reservations are not back yet: it takes these back first. A request with the Key of an earlier one
	// returns that reservation as it is now, and a Receipt with Replayed set.
	Hold(ctx context.Context, req HoldRequest) (Reservation, Receipt, error)
	// Confirm sells the units. It returns a reservation that is confirmed already, and fails with
	// ErrReservationExpired, ErrReservationCancelled or ErrUnknownReservation.
	Confirm(ctx context.Context, id ReservationID) (Reservation, error)
	// Cancel puts the units back. It returns a reservation that is cancelled or expired already, and fails with
	// ErrReservationConfirmed or ErrUnknownReservation.
	Cancel(ctx context.Context, id ReservationID) (Reservation, error)
	// Reservation returns a reservation as it is now, or fails with ErrUnknownReservation.
	Reservation(ctx context.Context, id ReservationID) (Reservation, error)
	// Sweep puts back the units of expired reservations until ctx ends. Every replica does so in the background.
	Sweep(ctx context.Context)
	// ReservationStats returns what there is to monitor.
	ReservationStats(ctx context.Context) (ReservationStats, error)
}

// HoldRequest asks to hold the units of a Request for a time. Key and Hold are as in a deduction.
type HoldRequest struct {
	Request
	TTL time.Duration // MinTTL to MaxTTL, in whole milliseconds
}

// Reservation is units of an item that were held.
type Reservation struct {
	ID      ReservationID
	State   ReservationState
	GoodsID int64
	Count   int // units
	Created time.Time
	Expires time.Time
	Ended   time.Time // zero unless the units are sold or back in the stock
}

// ReservationState tells what became of a reservation.
type ReservationState string

// The states. A reservation is held until it gets one of the others, and then keeps that.
const (
	Held      ReservationState = "held"
	Confirmed ReservationState = "confirmed" // its units are sold
	Cancelled ReservationState = "cancelled" // its units are back in the stock
	Expired   ReservationState = "expired"   // its units are back in the stock
)

// EndStates lists the states in which a reservation has ended.
var EndStates = []ReservationState{Confirmed, Cancelled, Expired}

// ReservationStats is what there is to monitor about reservations.
type ReservationStats struct {
	// HeldUnits and Overdue are those of all replicas together. Overdue is how long the units of an expired reservation
	// have not been back in the stock, at most; 0 if there is none.
	HeldUnits int64
	Overdue   time.Duration

	// Ended counts the reservations that this replica ended, and Lag is the time from the expiry of the expired ones to
	// their end, of all together.
	Ended map[ReservationState]int64
	Lag   time.Duration
}

// Refusals: the reservation stays as it is.
var (
	// ErrUnknownReservation reports that there is no reservation with this id.
	ErrUnknownReservation = errors.New("unknown reservation")
	// ErrReservationExpired reports that a reservation cannot be confirmed because its time has passed.
	ErrReservationExpired = errors.New("the reservation has expired")
	// ErrReservationCancelled reports that a reservation cannot be confirmed because it was cancelled.
	ErrReservationCancelled = errors.New("the reservation was cancelled")
	// ErrReservationConfirmed reports that a reservation cannot be cancelled because its units are sold.
	ErrReservationConfirmed = errors.New("the reservation was confirmed")
	// ErrNoReservations reports that a strategy takes no reservations on this store.
	ErrNoReservations = errors.New("takes no reservations")
)

// ReservationID identifies a reservation. It is a UUID of version 7 (RFC 9562): the time comes first, so that new
// reservations are appended to an index, and 74 bits are random, so that nobody can guess the id of another buyer.
type ReservationID [16]byte

// NewReservationID makes an id. Its time is that of this machine, and decides nothing.
func NewReservationID() (id ReservationID) {
	_, _ = rand.Read(id[6:]) // it never fails
	var millis [8]byte
	binary.BigEndian.PutUint64(millis[:], uint64(time.Now().UnixMilli()))
	copy(id[:6], millis[2:])
	id[6] = id[6]&0x0f | 0x70 // version 7
	id[8] = id[8]&0x3f | 0x80 // variant
	return id
}

// ParseReservationID reads the text of String. Its error is ErrUnknownReservation, since no reservation has such an id.
func ParseReservationID(text string) (id ReservationID, err error) {
	if len(text) == 36 && text[8] == '-' && text[13] == '-' && text[18] == '-' && text[23] == '-' {
		digits := text[:8] + text[9:13] + text[14:18] + text[19:23] + text[24:]
		if _, err := hex.Decode(id[:], []byte(digits)); err == nil {
			return id, nil
		}
	}
	return ReservationID{}, fmt.Errorf("%w: %q is not the id of a reservation", ErrUnknownReservation, text)
}

// String writes the id as a UUID.
func (id ReservationID) String() string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}
