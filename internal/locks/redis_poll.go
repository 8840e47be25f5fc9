package locks

import (
	"context"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"
)

// What the rungs of the Redis ladder have in common: how they ask, how they wait, and how they give back.

// setNX sets key to value for the time of a lease, or for ever where lease is 0, unless the key is there already.
func setNX(ctx context.Context, client redis.UniversalClient, key, value string, lease time.Duration) (granted bool, err error) {
	err = client.SetArgs(ctx, key, value, redis.SetArgs{Mode: "NX", TTL: lease}).Err()
	if errors.Is(err, redis.Nil) {
		return false, nil
	}
	return err == nil, err
}

// poll asks until the lock is granted, with a pause between two tries, and returns when the try that was granted was
// sent. undo takes back what a try may have been granted whose reply is missing: the effect need not be. It is nil for a
// lock without owners, which cannot tell its own grant from another's.
func poll(ctx context.Context, key string, o Options, ask func() (granted bool, err error), undo func(context.Context) error) (sent time.Time, err error) {
	for {
		sent = time.Now()
		granted, err := ask()
		switch {
		case err != nil:
			if undo != nil {
				takeBack(ctx, o.Lease, undo)
			}
			return sent, notAcquired(key, errors.Join(ended(ctx), err))
		case granted:
			return sent, nil
		}
		if err := sleep(ctx, jitter(o.Poll)); err != nil {
			return sent, notAcquired(key, err)
		}
	}
}

// jitter spreads a pause over half to one and a half of d, lest waiters that came together keep coming together.
func jitter(d time.Duration) time.Duration { return d/2 + mathrand.N(d) }

// giveBack gives a lock back on the server, and says whether it was still the caller's.
type giveBack func(context.Context) (ours bool, err error)

// unlock makes it what a lease wants.
func (g giveBack) unlock(key string) func(context.Context) error {
	return func(ctx context.Context) error {
		switch ours, err := g(ctx); {
		case err != nil:
			return fmt.Errorf("unlock %s: %w", key, err)
		case !ours:
			return fmt.Errorf("unlock %s: %w", key, ErrLeaseLost)
		}
		return nil
	}
}

// undo makes it what takeBack wants: it does not matter whether there was anything to give back.
func (g giveBack) undo(ctx context.Context) error {
	_, err := g(ctx)
	return err
}
