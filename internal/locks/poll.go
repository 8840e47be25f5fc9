package locks

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// pollOnce is one request of a lock that polls.
type pollOnce struct {
	ask func() (granted bool, err error)
	// undo undoes a grant whose reply was lost. It is nil for a lock without owners, which cannot tell its own grant from
	// another's.
	undo func(context.Context) error
	// notDone reports whether an error of ask proves that nothing was granted.
	notDone func(error) bool
}

// poll asks until the lock is granted, and returns when the request that was granted was sent. If a request fails and
// may have taken effect nevertheless, because only its reply was lost, poll undoes it.
func (o Options) poll(ctx context.Context, key string, undos *undoer, p pollOnce) (sent time.Time, err error) {
	if err := undos.full(); err != nil {
		return sent, notAcquired(key, err)
	}
	for {
		sent = time.Now()
		granted, err := p.ask()
		switch {
		case err != nil:
			if p.undo != nil && !p.notDone(err) {
				undos.takeBack(ctx, p.undo)
			}
			return sent, notAcquired(key, errors.Join(ended(ctx), err))
		case granted:
			return sent, nil
		case triesOnce(ctx):
			return sent, notAcquired(key, ErrHeld)
		}
		if err := sleep(ctx, jitter(o.Poll)); err != nil {
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
