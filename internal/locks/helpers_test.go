package locks_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/internal/locks"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
)

// patience bounds what a test waits for. It is long enough for a loaded machine; a lock that works never uses it up.
const patience = 20 * time.Second

// nobody is an address where nothing listens.
var nobody = &redis.Options{Addr: "127.0.0.1:1"}

func patient(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func connect(t testing.TB, options *redis.Options) redis.UniversalClient {
	return serverstest.RedisClient(t, options)
}

func connectAll(t testing.TB, options []*redis.Options) []redis.UniversalClient {
	var clients []redis.UniversalClient
	for _, o := range options {
		clients = append(clients, connect(t, o))
	}
	return clients
}

func exists(t testing.TB, client redis.UniversalClient, key string) bool {
	n, err := client.Exists(context.WithoutCancel(t.Context()), key).Result()
	if err != nil {
		t.Fatal(err)
	}
	return n == 1
}

func del(t testing.TB, client redis.UniversalClient, key string) {
	if err := client.Del(t.Context(), key).Err(); err != nil {
		t.Fatal(err)
	}
}

// mustLock retries a Lock that fails: on a busy machine a service may take longer to answer than the lock allows. The
// conformance suite checks that Lock does not fail without need.
func mustLock(t testing.TB, l locks.Locker, key string) *locks.Lease {
	t.Helper()
	ctx := patient(t)
	for {
		lease, err := l.Lock(ctx, key)
		if err == nil {
			return lease
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func mustUnlock(t testing.TB, lease *locks.Lease) {
	t.Helper()
	if err := lease.Unlock(); err != nil {
		t.Error(err)
	}
}

// startLock calls Lock in the background.
func startLock(ctx context.Context, l locks.Locker, key string) (granted <-chan *locks.Lease, failed <-chan error) {
	leases, errs := make(chan *locks.Lease, 1), make(chan error, 1)
	go func() {
		lease, err := l.Lock(ctx, key)
		if err != nil {
			errs <- err
			return
		}
		leases <- lease
	}()
	return leases, errs
}

// receive waits for a value. It fails the test on an error of startLock.
func receive[T any](t testing.TB, from <-chan T, failed <-chan error) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case err := <-failed:
		t.Fatalf("Lock: %v", err)
	case <-time.After(patience):
		t.Fatalf("nothing happened within %v", patience)
	}
	panic("unreachable")
}

// lockLater calls Lock in the background. It fails the test if the lock is not granted.
func lockLater(t testing.TB, l locks.Locker, key string) <-chan *locks.Lease {
	granted, ctx := make(chan *locks.Lease, 1), patient(t)
	go func() {
		lease, err := l.Lock(ctx, key)
		if err != nil {
			t.Error(err)
		}
		granted <- lease
	}()
	return granted
}

// awaitLoss waits until the holder learns that its lease is lost.
func awaitLoss(t testing.TB, lease *locks.Lease) {
	t.Helper()
	select {
	case <-lease.Context().Done():
	case <-time.After(patience):
		t.Fatal("the holder does not learn that its lease is lost")
	}
	if cause := context.Cause(lease.Context()); !errors.Is(cause, locks.ErrLeaseLost) {
		t.Errorf("the lease's context ended with %v, want ErrLeaseLost", cause)
	}
}

func wantLeaseLost(t testing.TB, unlockErr error) {
	t.Helper()
	if !errors.Is(unlockErr, locks.ErrLeaseLost) {
		t.Errorf("Unlock of a lost lock: %v, want ErrLeaseLost", unlockErr)
	}
}

// wantNotAcquired checks that Lock failed, and because of cause.
func wantNotAcquired(t testing.TB, lockErr, cause error) {
	t.Helper()
	if !errors.Is(lockErr, locks.ErrNotAcquired) || !errors.Is(lockErr, cause) {
		t.Errorf("Lock: %v, want ErrNotAcquired joined with %v", lockErr, cause)
	}
}

// wantServiceError checks that Lock failed with an error of the lock service, not because the caller's deadline passed.
func wantServiceError(t testing.TB, lockErr error) {
	t.Helper()
	if !errors.Is(lockErr, locks.ErrNotAcquired) || errors.Is(lockErr, context.DeadlineExceeded) {
		t.Errorf("Lock: %v, want ErrNotAcquired joined with the service's error", lockErr)
	}
}

// pause stops a server with SIGSTOP and waits until all of its threads have stopped (on Linux).
func pause(t testing.TB, server *servers.Process) {
	t.Helper()
	if err := server.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	serverstest.Eventually(t, "all threads of the server have stopped", func() bool {
		stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", server.PID))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range stats {
			if stat, err := os.ReadFile(path); err == nil && !strings.Contains(string(stat), ") T ") {
				return false
			}
		}
		return true
	})
}
