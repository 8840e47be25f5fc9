package stock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"stock/internal/locks"
)

// retries tries again for strategies that learn only as they write that another was faster. It keeps many buyers of one goods
// from undoing each other's work, which otherwise grows with their number, until nearly every try is stale on arrival:
//
// The first try is free. Who loses it waits for the turn of its process, in the order of arrival: one retry a goods is on its
// way at a time, however many wait. Of two retries of one process one would lose for certain. The turn excludes nobody else,
// and nothing is correct because of it: first tries and other processes still compete, and the store decides who wins.
//
// Who loses again, to these, backs off: exponentially, from the time that its own try took, so that it adapts to the store's
// round trip and to the work inside; and with full jitter, which spreads contenders best (Brooker, "Exponential Backoff And
// Jitter", AWS Architecture Blog, 2015).
type retries struct {
	wait  time.Duration // longest wait for a try to win
	turns locks.Mutex   // of this process, by goods
}

// errLost says that another was faster and that nothing was written: worth another try.
var errLost = errors.New("another was faster")

// longestBackOff keeps a few losses in a row from idling for long.
const longestBackOff = 64 * time.Millisecond

// deduct tries until the outcome is not errLost, or gives up with ErrBusy. Where a try is on its way it is not given up.
func (r *retries) deduct(ctx context.Context, req Request, try func(*section) (Receipt, error)) (Receipt, error) {
	section := arrive()
	receipt, err := try(&section)
	if !errors.Is(err, errLost) {
		return receipt, err
	}
	left := r.wait - time.Duration(monotonic.now()-section.asked)
	waiting, cancel := context.WithTimeoutCause(ctx, left, errWaited)
	defer cancel()
	turn, err := r.turns.Lock(waiting, strconv.FormatInt(req.GoodsID, 10))
	if err != nil {
		return Receipt{}, beaten(waiting, req, 1)
	}
	defer turn.Unlock()
	for attempt := 2; ; attempt++ {
		began := time.Now()
		receipt, err := try(&section)
		if !errors.Is(err, errLost) {
			receipt.Attempts = attempt
			return receipt, err
		}
		if jitter(waiting, time.Since(began)<<min(attempt-2, 6)) != nil {
			return Receipt{}, beaten(waiting, req, attempt)
		}
	}
}

// beaten is the refusal of a deduction that gave up.
func beaten(waiting context.Context, req Request, tries int) error {
	return fmt.Errorf("%w: goods %d changed under each of %d tries: %w", ErrBusy, req.GoodsID, tries, context.Cause(waiting))
}

// backOff sleeps longer with every attempt that failed. It is for those whose own round trips say nothing of the others'.
func backOff(ctx context.Context, attempt int) error {
	return jitter(ctx, time.Millisecond<<min(attempt, 6))
}

// jitter sleeps up to a ceiling, or until ctx ends, whose error it then returns.
func jitter(ctx context.Context, ceiling time.Duration) error {
	timer := time.NewTimer(rand.N(max(1, min(ceiling, longestBackOff))))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
