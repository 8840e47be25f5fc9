package stock

import (
	"errors"
	"fmt"
)

// Refusals: nothing was deducted.
var (
	// ErrUnknownItem reports that the store has no item with this id.
	ErrUnknownItem = errors.New("unknown item")
	// ErrSoldOut reports that fewer units are left than were asked for. It comes as a *SoldOutError.
	ErrSoldOut = errors.New("sold out")
	// ErrBusy reports that the strategy gave up waiting for a lock, a retry or a pooled connection.
	ErrBusy = errors.New("busy")
	// ErrUnavailable reports that a server the strategy needs is down or not configured.
	ErrUnavailable = errors.New("unavailable")
	// ErrFenced reports that a later holder of the lock has written. It is an ErrBusy.
	ErrFenced = fmt.Errorf("%w: refused by the fence", ErrBusy)
	// ErrChanged reports that a stock or a sale is not what the request has read, so that it wrote nothing. It is an
	// ErrBusy: see TryAgain.
	ErrChanged = fmt.Errorf("%w: changed between read and write", ErrBusy)
	// ErrOverstocked reports that a restock would exceed MaxStock.
	ErrOverstocked = errors.New("overstocked")
	// ErrUnknownStrategy reports that the catalogue has no strategy of this name.
	ErrUnknownStrategy = errors.New("unknown strategy")
	// ErrUnsupportedStore reports that the strategy does not work on this store.
	ErrUnsupportedStore = errors.New("unsupported store")
	// ErrNoOrders reports that a strategy does not take orders on this store.
	ErrNoOrders = errors.New("takes no orders")
	// ErrKeyReused reports that the idempotency key was used for another request before.
	ErrKeyReused = errors.New("idempotency key was used for another request")
	// ErrInProgress reports that the first request with this key has not ended. That one may still deduct.
	ErrInProgress = errors.New("the first request with this idempotency key is still in progress")
	// ErrKeyUnsupported reports that the strategy ignores idempotency keys: a request sent again would deduct again.
	ErrKeyUnsupported = errors.New("idempotency keys are not supported")
)

// ErrUnknown reports that the deduction was sent and no reply arrived: it may have taken effect.
var ErrUnknown = errors.New("outcome unknown")

// SoldOutError is an ErrSoldOut with the number of units that are left.
type SoldOutError struct {
	GoodsID   int64
	Asked     int
	Remaining int64 // units
}

// Error names the item and its stock.
func (e *SoldOutError) Error() string {
	return fmt.Sprintf("item %d has %d units left, fewer than the %d requested", e.GoodsID, e.Remaining, e.Asked)
}

// Is makes errors.Is(err, ErrSoldOut) true.
func (e *SoldOutError) Is(target error) bool { return target == ErrSoldOut }

// LineError names the item because of which an order was refused.
type LineError struct {
	GoodsID int64
	Err     error
}

// Error names the item.
func (e *LineError) Error() string { return fmt.Sprintf("line of item %d: %v", e.GoodsID, e.Err) }

// Unwrap returns the refusal.
func (e *LineError) Unwrap() error { return e.Err }

// UnknownItem is the ErrUnknownItem of an item that a server does not have.
func UnknownItem(goodsID int64, server string) error {
	return fmt.Errorf("%w: item %d is not in %s", ErrUnknownItem, goodsID, server)
}

// Interrupted is the ErrBusy of a deduction that ended before it wrote anything.
func Interrupted(cause error) error {
	return fmt.Errorf("%w: ended before anything was written: %w", ErrBusy, cause)
}

// Unrecorded is the error of a request with a key if its refusal could not be recorded. It is not an ErrUnknown, since
// nothing was deducted, nor the refusal, since the request may get another answer when it is sent again.
func Unrecorded(refusal, cause error) error {
	return fmt.Errorf("%w: refused (%v), but it is unknown whether that answer was recorded: %v",
		ErrUnavailable, refusal, cause)
}

// Overstocked is the ErrOverstocked of a restock by units.
func Overstocked(goodsID, present, units int64) error {
	return fmt.Errorf("%w: item %d has %d units; %d more would exceed %d",
		ErrOverstocked, goodsID, present, units, int64(MaxStock))
}
