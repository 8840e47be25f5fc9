package locks_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/internal/locks"
	"stock/internal/servers/serverstest"
)

func TestRedlockIsGrantedWhileAMinorityIsDown(t *testing.T) {
	t.Parallel()
	lock, err := locks.NewRedlock(connectAll(t, append(shared.Redlock(t, 2), nobody)), locks.Options{})
	if err != nil {
		t.Fatal(err)
	}
	mustUnlock(t, mustLock(t, lock, "lock:{1}"))
}

func TestRedlockTakesBackItsVotesFromMastersThatWentDown(t *testing.T) {
	t.Parallel()
	masters := shared.Redlock(t, 3)
	clients, observers := connectAll(t, masters), connectAll(t, masters)
	back := make([]atomic.Bool, len(clients))
	for i, client := range clients {
		// After the first SET, whose reply is lost, nobody listens until the master is back.
		var down atomic.Bool
		client.AddHook(hook{command: func(ctx context.Context, next redis.ProcessHook, cmd redis.Cmder) error {
			var lost error
			switch {
			case down.Load() && !back[i].Load():
				lost = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
			default:
				err := next(ctx, cmd)
				if cmd.Name() != "set" || !down.CompareAndSwap(false, true) {
					return err
				}
				lost = io.EOF
			}
			cmd.SetErr(lost)
			return lost
		}})
	}
	lock, err := locks.NewRedlock(clients, locks.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lock.Close() })
	if _, err := lock.Lock(patient(t), "lock:{1}"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("Lock: %v, want it to fail because the masters are down", err)
	}
	for i, observer := range observers {
		if !exists(t, observer, "lock:{1}") {
			t.Error("a master has not voted: this proves nothing")
		}
		back[i].Store(true)
		serverstest.Eventually(t, "the vote is taken back", func() bool { return !exists(t, observer, "lock:{1}") })
	}
}

func TestRedlockNeedsAnOddNumberOfMasters(t *testing.T) {
	t.Parallel()
	for n := range 6 {
		_, err := locks.NewRedlock(make([]redis.UniversalClient, n), locks.Options{})
		if want := n == 3 || n == 5; (err == nil) != want {
			t.Errorf("%d masters: %v", n, err)
		}
	}
}

// A master voted, and redsync could not take the vote back.
func TestRedlockTakesBackTheVotesOfAnEarlierAttempt(t *testing.T) {
	t.Parallel()
	const key = "lock:{1}"
	for name, down := range map[string]bool{
		"the caller gives up between two attempts": false,
		"a majority is down":                       true,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options := shared.Redlock(t, 3)
			voted := connect(t, options[2])
			for i, o := range options[:2] {
				if down {
					options[i] = nobody
				} else if err := connect(t, o).Set(t.Context(), key, "another holder", 0).Err(); err != nil {
					t.Fatal(err)
				}
			}
			masters := connectAll(t, options)
			var lost atomic.Bool
			masters[2].AddHook(hook{script: func(ctx context.Context, next redis.ProcessHook, cmd redis.Cmder) error {
				if lost.CompareAndSwap(false, true) {
					return io.EOF
				}
				return next(ctx, cmd)
			}})
			lock, err := locks.NewRedlock(masters, locks.Options{Lease: time.Minute, Poll: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			defer lock.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			if _, err := lock.Lock(ctx, key); err == nil || !lost.Load() {
				t.Errorf("Lock: %v, want an error after a vote that was not taken back", err)
			}
			serverstest.Eventually(t, "the vote is taken back", func() bool { return !exists(t, voted, key) })
		})
	}
}
