package retry

import (
	"context"
	"errors"
	"time"

	"stock/internal/stock"
)

// Spin tries again at once: Retries without its queue and its pauses. The more buyers want an item, the more tries each
// sale takes.
type Spin struct {
	Wait time.Duration // how long a request may try in all, unless stock.LimitWait says less
}

// Deduct is as Retries.Deduct.
func (s Spin) Deduct(ctx context.Context, req stock.Request, try Try) (stock.Receipt, error) {
	section := stock.Arrive()
	waiting, cancel := context.WithTimeoutCause(ctx, stock.LongestWait(ctx, s.Wait), errWaited)
	defer cancel()
	for attempt := 1; ; attempt++ {
		receipt, err := try(&section)
		if !errors.Is(err, ErrConflict) {
			receipt.Attempts = attempt
			return receipt, err
		}
		if waiting.Err() != nil {
			return stock.Receipt{}, gaveUp(waiting, req, attempt)
		}
	}
}
