package locks

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// request is how a Lock asks for a key.
type request struct {
	ask func() (granted bool, err error)
	// undo undoes a grant whose reply was lost, and leaves the queue of a lock that queues. It is nil for a lock without
	// owners, which cannot tell its own grant from another's.
	undo func(context.Context) error
	// notDone reports whether an error of ask proves that nothing was done.
	notDone func(error) bool
	wait    func(context.Context) error // until it is time to ask again
	queues  bool                        // whoever waits has a place in a queue
}

// poll waits for a random time around Options.Poll.
func (o Options) poll(ctx context.Context) error { return sleep(ctx, jitter(o.Poll)) }

// await asks until the lock is granted, and returns when the request that was granted was sent. If a request fails and
// may have taken effect nevertheless, because only its reply was lost, await undoes it.
func (r request) await(ctx context.Context, key string, undos *undoer) (sent time.Time, err error) {
	if err := undos.full(); err != nil {
		return sent, notAcquired(key, err)
	}
	for queued := false; ; queued = r.queues {
		sent = time.Now()
		granted, err := r.ask()
		switch {
		case err != nil:
			if r.undo != nil && (queued || !r.notDone(err)) {
				undos.takeBack(ctx, r.undo)
			}
			return sent, notAcquired(key, errors.Join(ended(ctx), err))
		case granted:
			return sent, nil
		case triesOnce(ctx):
			return sent, notAcquired(key, ErrHeld)
		}
		if err := r.wait(ctx); err != nil {
			if r.queues {
				undos.takeBack(ctx, r.undo)
			}
			return sent, notAcquired(key, err)
		}
	}
}

// jitter returns a random duration between half of d and one and a half of d, so that waiters that arrived together do
// not keep asking together.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d) }

// releaseFunc releases a lock on the server and returns whether it was still the caller's.
type releaseFunc func(context.Context) (ours bool, err error)

// unlockOnce adapts a releaseFunc to newLease.
func (release releaseFunc) unlockOnce(key string) func(context.Context) error {
	return func(ctx context.Context) error {
		switch ours, err := release(ctx); {
		case err != nil:
			return fmt.Errorf("unlock %s: %w", key, err)
		case !ours:
			return fmt.Errorf("unlock %s: %w", key, ErrLeaseLost)
		}
		return nil
	}
}

// unlock adapts a release that may be repeated to newLease. If the server does not answer, the release is repeated in
// the background until the lease has ended, so that a shorter outage does not block the lock for a whole lease.
func (release releaseFunc) unlock(key string, undos *undoer) func(context.Context) error {
	once := release.unlockOnce(key)
	return func(ctx context.Context) error {
		err := once(ctx)
		if err != nil && !errors.Is(err, ErrLeaseLost) {
			undos.takeBackLater(release.undo)
		}
		return err
	}
}

// undo adapts a releaseFunc to an undoer: it is no error if there was nothing to release.
func (release releaseFunc) undo(ctx context.Context) error {
	_, err := release(ctx)
	return err
}
