package locks_test

import (
	"context"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/internal/locks"
	"stock/internal/must"
	"stock/internal/servers/serverstest"
)

func TestRedlockIsGrantedWhileAMinorityIsDown(t *testing.T) {
	t.Parallel()
	lock := newRedlockOn(t, connectAll(t, append(shared.Redlock(t, 2), nobody)), lasting)
	mustUnlock(t, mustLock(t, lock, "lock:{1}"))
}

func TestLocksOnSeveralMastersRefuseTooFew(t *testing.T) {
	t.Parallel()
	for n := range 6 {
		masters := make([]redis.UniversalClient, n)
		_, redlock := locks.NewRedlock(masters, locks.Options{})
		_, multi := locks.NewRedisMulti(masters, locks.Options{})
		if (redlock == nil) != (n == 3 || n == 5) || (multi == nil) != (n >= 2) {
			t.Errorf("%d masters: %v; %v", n, redlock, multi)
		}
	}
}

// A master votes for a caller that has given up, and redsync does not take the vote back.
func TestRedlockTakesBackTheVotesOfAnEarlierAttempt(t *testing.T) {
	t.Parallel()
	const key = "lock:{1}"
	options := shared.Redlock(t, 3)
	voted := connect(t, options[2])
	for _, o := range options[:2] {
		must.Succeed(t, connect(t, o).Set(t.Context(), key, "another holder", 0).Err())
	}
	masters := connectAll(t, options)
	var lost atomic.Bool
	masters[2].AddHook(hook{script: func(ctx context.Context, next redis.ProcessHook, cmd redis.Cmder) error {
		if lost.CompareAndSwap(false, true) {
			return io.EOF
		}
		return next(ctx, cmd)
	}})
	lock := newRedlockOn(t, masters, locks.Options{Lease: time.Minute, Poll: time.Minute})
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, err := lock.Lock(ctx, key); err == nil || !lost.Load() {
		t.Errorf("Lock: %v, want an error after a vote that was not taken back", err)
	}
	serverstest.Eventually(t, "the vote is taken back", func() bool { return !exists(t, voted, key) })
	_ = locks.Close(lock)
}
