// Package retry tries deductions again for strategies that learn only when they write that another request was faster.
package retry

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"stock/internal/locks"
	"stock/internal/monotonic"
	"stock/internal/stock"
)

// ErrConflict reports that another request was faster and nothing was written: a retry may succeed.
var ErrConflict = errors.New("another request was faster")

// Retries keeps many buyers of one item from undoing each other's work. Without it, the number of failed tries grows
// with the number of buyers, until nearly every try is stale on arrival.
//
// The first try of a request is free. A request that loses it waits in a queue of its process, in the order of
// arrival: only one retry for each item is under way at a time, since all but one of them would fail. The queue
// excludes no first try and no other process. Correctness does not depend on it: the store decides who wins.
//
// A request that loses again backs off exponentially, starting from the time that its own try took, so that the pause
// adapts to the store's round trip and to the work inside the critical section; and with full jitter, which spreads
// contenders best (Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015).
type Retries struct {
	Wait  time.Duration // how long a request may try in all, unless stock.LimitWait says less
	queue locks.Mutex   // of this process, by item
}

// longestBackOff keeps a few conflicts in a row from causing a long pause.
const longestBackOff = 64 * time.Millisecond

var errWaited = errors.New("the longest wait for a retry has passed")

// Try deducts once, and fails with ErrConflict if a retry may succeed.
type Try func(*stock.Section) (stock.Receipt, error)

// Deduct tries until the outcome is not ErrConflict, or gives up with ErrBusy. It never gives up a try that is under
// way.
func (r *Retries) Deduct(ctx context.Context, req stock.Request, try Try) (stock.Receipt, error) {
	section := stock.Arrive()
	receipt, err := try(&section)
	if !errors.Is(err, ErrConflict) {
		return receipt, err
	}
	waiting, cancel := context.WithTimeoutCause(ctx, stock.LongestWait(ctx, r.Wait)-section.Elapsed(), errWaited)
	defer cancel()
	place, err := r.queue.Lock(waiting, strconv.FormatInt(req.GoodsID, 10))
	if err != nil {
		return stock.Receipt{}, gaveUp(waiting, req, 1)
	}
	defer func() { _ = place.Unlock() }() // a Mutex always unlocks
	for attempt := 2; ; attempt++ {
		began := time.Now()
		receipt, err := try(&section)
		if !errors.Is(err, ErrConflict) {
			receipt.Attempts = attempt
			return receipt, err
		}
		if sleepUpTo(waiting, time.Since(began)<<min(attempt-2, 6)) != nil {
			return stock.Receipt{}, gaveUp(waiting, req, attempt)
		}
	}
}

func gaveUp(waiting context.Context, req stock.Request, tries int) error {
	return fmt.Errorf("%w: item %d changed during each of %d tries: %w",
		stock.ErrBusy, req.GoodsID, tries, context.Cause(waiting))
}

// While tries again, after a pause, while the error is one after which another try may succeed, unless the request has
// tried for as long as each of its waits may last: see stock.LongestWait.
func While(ctx context.Context, wait time.Duration, again func(error) bool, try func() error) error {
	section := stock.Arrive()
	for attempt := 1; ; attempt++ {
		err := try()
		if !again(err) || section.Elapsed() > stock.LongestWait(ctx, wait) || BackOff(ctx, attempt) != nil {
			return err
		}
	}
}

// BackOff sleeps longer with every failed attempt, counted from 1. It is for callers that cannot measure how long
// another's try takes. If ctx ends first, it returns ctx.Err().
func BackOff(ctx context.Context, attempt int) error {
	return sleepUpTo(ctx, time.Millisecond<<min(attempt, 6))
}

// sleepUpTo sleeps for a random time up to a ceiling.
func sleepUpTo(ctx context.Context, ceiling time.Duration) error {
	return monotonic.Sleep(ctx, rand.N(max(1, min(ceiling, longestBackOff))))
}
