package locks_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"stock/internal/locks"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
)

// outages are the ways in which a server stops answering without notice.
var outages = map[string]func(testing.TB, *servers.Process){
	"killed": func(_ testing.TB, server *servers.Process) { server.Kill() },
	"paused": func(t testing.TB, server *servers.Process) { pause(t, server) },
}

// waitersFail waits for a held lock, in the holder's process and in another, and asks for it again after the outage.
// All calls must fail with an error of the service, although no context ends.
func waitersFail(t *testing.T, here, there locks.Locker, queued func() bool, outage func()) {
	held := mustLock(t, here, "held")
	var failures []<-chan error
	wait := func(l locks.Locker) {
		_, failed := startLock(t.Context(), l, "held")
		failures = append(failures, failed)
	}
	for _, l := range []locks.Locker{here, here, there, there} {
		wait(l)
	}
	serverstest.Eventually(t, "all clients wait", queued)
	outage()
	wait(here)
	wait(there)
	for i, failed := range failures {
		select {
		case err := <-failed:
			if !errors.Is(err, locks.ErrNotAcquired) ||
				errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
				t.Errorf("waiter %d: %v, want ErrNotAcquired joined with the service's error", i, err)
			}
		case <-time.After(15 * time.Second): // half of the lease
			t.Fatalf("waiter %d does not notice the outage", i)
		}
	}
	if err := held.Context().Err(); err != nil {
		t.Errorf("the lease has not ended yet, but the holder's context has: %v", err)
	}
	_ = held.Unlock()
}

func TestEtcdWaitersFailWhenTheServerStopsAnswering(t *testing.T) {
	t.Parallel()
	for name, outage := range outages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := serverstest.StartEtcd(t, servers.EtcdOptions{Relaxed: true})
			observer, o := connectEtcd(t, server.Addr), locks.Options{Renew: 100 * time.Millisecond}
			here, there := newEtcd(t, server.Addr, o), newEtcd(t, server.Addr, o)
			waitersFail(t, here, there, func() bool {
				keys, _ := etcdQueue(t, observer, "held") // one per process
				return len(keys) == 2
			}, func() { outage(t, server.Process) })
			if err := here.Close(); err != nil {
				t.Errorf("Close: %v, want no error: the session ends by itself", err)
			}
		})
	}
}

func TestZooKeeperWaitersFailWhenTheServerStopsAnswering(t *testing.T) {
	t.Parallel()
	for name, outage := range outages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := serverstest.StartZooKeeper(t, servers.ZooKeeperOptions{Relaxed: true})
			observer, o := connectZooKeeper(t, server.Addr, time.Minute), locks.Options{Renew: 100 * time.Millisecond}
			waitersFail(t, newZooKeeper(t, server.Addr, o), newZooKeeper(t, server.Addr, o),
				func() bool { return len(zkQueue(t, observer, "held")) == 5 }, func() { outage(t, server.Process) })
		})
	}
}

func TestPulseIgnoresAShortOutage(t *testing.T) {
	t.Parallel()
	asked := make(chan error)
	pulse := locks.NewPulse(locks.Options{Renew: time.Millisecond}, func(ctx context.Context) error {
		select {
		case err := <-asked:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	waiting, stop := pulse.Watch(t.Context())
	defer stop()
	for _, err := range []error{nil, errors.New("down"), nil, errors.New("down"), nil, nil} {
		select {
		case asked <- err:
		case <-waiting.Done():
			t.Fatalf("the wait was cancelled: %v", context.Cause(waiting))
		}
	}
}
