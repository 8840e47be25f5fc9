package locks

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// Limits of undoing what may have been granted without a reply.
const (
	undoLimit    = 250 * time.Millisecond // for one attempt
	undoPause    = 100 * time.Millisecond // after the first attempt; each pause is twice the one before
	maxUndoPause = 500 * time.Millisecond // keeps an outage from ending in a burst of requests
)

// takeBack undoes a grant whose reply was lost. It makes one attempt while the caller waits, so that nothing is left
// behind once Lock has failed. If the service does not answer, it goes on in the background.
func takeBack(ctx context.Context, lease time.Duration, undo func(context.Context) error) {
	if tryUndo(ctx, undo) != nil {
		takeBackLater(ctx, lease, undo)
	}
}

// takeBackLater calls undo in the background until it succeeds, or until the lease has ended by itself.
func takeBackLater(ctx context.Context, lease time.Duration, undo func(context.Context) error) {
	deadline := time.Now().Add(lease)
	go func() {
		for pause := undoPause; time.Now().Before(deadline); pause = min(2*pause, maxUndoPause) {
			time.Sleep(pause)
			if err := tryUndo(ctx, undo); err == nil || errors.Is(err, redis.ErrClosed) {
				return
			}
		}
	}()
}

func tryUndo(ctx context.Context, undo func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoLimit)
	defer cancel()
	return undo(ctx)
}
