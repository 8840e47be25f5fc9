package locks

import (
	"context"
	"time"
)

// None grants every key to everybody at once. It shows what the other locks are for.
type None struct{}

// Lock implements Locker, but for its promise.
func (None) Lock(ctx context.Context, key string) (*Lease, error) {
	if err := ctx.Err(); err != nil {
		return nil, notAcquired(key, err)
	}
	return newLease(ctx, time.Time{}, 0, func(context.Context) error { return nil }), nil
}
