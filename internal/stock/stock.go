// Package stock takes units of goods out of stock, in as many ways as there are strategies in the Catalogue.
//
// Every strategy gives one of three outcomes: a Receipt (done), a refusal (ErrSoldOut, ErrUnknownGoods, ErrBusy or
// ErrUnavailable: nothing was deducted), or ErrUnknown (the deduction may or may not have taken effect).
package stock

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Refusals: nothing was deducted.
var (
	// ErrUnknownGoods says that no goods has this id in this store.
	ErrUnknownGoods = errors.New("unknown goods")
	// ErrSoldOut says that fewer units are left than were asked for. It comes as a *SoldOutError.
	ErrSoldOut = errors.New("sold out")
	// ErrBusy says that the strategy gave up waiting for its turn: a lock, a retry or a pooled connection.
	ErrBusy = errors.New("busy")
	// ErrUnavailable says that a server the strategy needs is down or is not configured.
	ErrUnavailable = errors.New("unavailable")
	// ErrFenced says that a later holder of a lock has claimed the goods. It is an ErrBusy.
	ErrFenced = fmt.Errorf("%w: a later holder has claimed the goods", ErrBusy)
	// ErrOverstocked says that a restock would lead beyond MaxStock.
	ErrOverstocked = errors.New("overstocked")
	// ErrUnknownStrategy says that the catalogue has no strategy of this name.
	ErrUnknownStrategy = errors.New("unknown strategy")
	// ErrUnsupportedStore says that the strategy does not work on the store asked for.
	ErrUnsupportedStore = errors.New("unsupported store")
	// ErrKeyReused says that the key was given with another order before.
	ErrKeyReused = errors.New("idempotency key was used for another order")
	// ErrInProgress says that the first request with this key has not ended: that one may still deduct.
	ErrInProgress = errors.New("the first request with this idempotency key is still in progress")
	// ErrKeyUnsupported says that the strategy cannot tell a request that is sent again from a new one.
	ErrKeyUnsupported = errors.New("idempotency keys are not supported")
)

// ErrUnknown says that the deduction was sent and its outcome never came back: it may have taken effect.
var ErrUnknown = errors.New("outcome unknown")

// SoldOutError is the ErrSoldOut that tells how many units are left.
type SoldOutError struct {
	GoodsID   int64
	Asked     int
	Remaining int64 // units
}

func (e *SoldOutError) Error() string {
	return fmt.Sprintf("goods %d has %d left, fewer than the %d asked for", e.GoodsID, e.Remaining, e.Asked)
}

// Is makes errors.Is(err, ErrSoldOut) true.
func (e *SoldOutError) Is(target error) bool { return target == ErrSoldOut }

// Limits of a Request.
const (
	MaxCount = 1_000_000
	MaxHold  = 10 * time.Second
	MaxKey   = 255 // characters
)

// MaxStock is the most units that are kept of one goods: JSON readers, and Redis's scripts, keep whole numbers exact up to here.
const MaxStock = 1<<53 - 1

// Request asks for Count units of one goods.
type Request struct {
	GoodsID int64
	Count   int           // units, 1 to MaxCount
	Key     string        // idempotency key: 1 to MaxKey printable ASCII characters; empty where the client gave none
	Hold    time.Duration // work to do inside the critical section, 0 to MaxHold
	Pause   PauseFunc     // nil but in a lab: see Point
}

// Receipt confirms a deduction.
type Receipt struct {
	Remaining int64         // units left right after this very deduction, unless Untold
	Untold    bool          // Remaining is not known: to find out would cost what the strategy is there to save
	Attempts  int           // how often the strategy tried: 1 where it never retries
	Token     uint64        // fencing token of the lock, 0 where the strategy has none
	Waited    time.Duration // until the critical section was entered
	Held      time.Duration // inside the critical section
	Entered   int64         // CLOCK_MONOTONIC nanoseconds: comparable between processes of one host
	Left      int64         // as Entered; both are the time of the reply where the section is inside one statement
	// Replayed says that nothing was deducted now: this is the answer to the first request with the same Key. The times
	// are 0. It is also set beside a *SoldOutError that is replayed.
	Replayed bool
}

// Point is a place in a deduction where a lab can stop it to replay a race.
type Point string

// The pause points, in the order in which a deduction passes them. A strategy passes those that it has.
const (
	AfterLock    Point = "after-lock"
	AfterRead    Point = "after-read"
	BeforeWrite  Point = "before-write"
	BeforeCommit Point = "before-commit"
	BeforeUnlock Point = "before-unlock"
)

// Points lists the pause points.
var Points = []Point{AfterLock, AfterRead, BeforeWrite, BeforeCommit, BeforeUnlock}

// PauseFunc stops a deduction at a point until it returns. Its error, if any, ends the deduction.
type PauseFunc func(context.Context, Point) error

func (r Request) pause(ctx context.Context, at Point) error {
	if r.Pause == nil {
		return nil
	}
	return r.Pause(ctx, at)
}

// work spends the request's Hold inside the critical section.
func (r Request) work(ctx context.Context) error {
	if r.Hold <= 0 {
		return nil
	}
	timer := time.NewTimer(r.Hold)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
