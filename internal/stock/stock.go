// Package stock defines what it means to deduct inventory: requests, receipts, errors, and the contract that every
// strategy fulfils. The strategies live in the packages below it; package catalogue lists and builds them.
//
// A deduction has one of three outcomes: a Receipt (done), a refusal (nothing was deducted), or ErrUnknown (the
// deduction may have taken effect).
package stock

import (
	"context"
	"time"
)

// Limits of a Request.
const (
	MaxCount = 1_000_000
	MaxHold  = 10 * time.Second
	MaxKey   = 255 // characters
)

// MaxStock is the largest stock of one item, in units. JSON readers and Redis's scripts represent whole numbers exactly
// up to here.
const MaxStock = 1<<53 - 1

// Deducter deducts units of one item.
type Deducter interface {
	// Deduct returns a Receipt or an error that wraps one of this package's refusals or ErrUnknown. A refusal promises
	// that nothing was deducted: return ErrUnknown unless that is certain. If the error is not nil, only the Receipt's
	// Replayed field is meaningful.
	//
	// Deduct times itself with a Section: Arrive first, Enter when exclusion is certain, Leave before it is given up.
	// It spends req.Hold in the critical section: see Work and Request.Decide. It waits no longer than LongestWait. In
	// MySQL, every write increments the row's version.
	Deduct(ctx context.Context, req Request) (Receipt, error)
}

// Request asks for Count units of one item.
type Request struct {
	GoodsID int64
	Count   int           // units, 1 to MaxCount
	Key     string        // idempotency key: 1 to MaxKey printable ASCII characters, or empty
	Hold    time.Duration // time to spend inside the critical section, 0 to MaxHold
}

// Receipt confirms a deduction.
type Receipt struct {
	Remaining int64         // units left right after this deduction; 0 unless Store.TellsRemaining
	Attempts  int           // number of tries, 1 for a strategy that never retries
	Token     uint64        // fencing token of the lock, 0 if the strategy has none
	Waited    time.Duration // from the request to the critical section
	Held      time.Duration // inside the critical section
	// Entered and Left are the bounds of the critical section in CLOCK_MONOTONIC nanoseconds, which can be compared
	// between processes of one host. Both are the time of the reply if the section lies inside one statement.
	Entered, Left int64
	// Replayed reports that nothing was deducted now: this is the answer to the first request with the same Key, and
	// the times are 0. It is also set beside a *SoldOutError or an ErrCancelled.
	Replayed bool
}
