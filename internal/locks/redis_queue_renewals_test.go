package locks_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/internal/locks"
	"stock/internal/servers/serverstest"
)

func TestRedisQueueRenewsTheOtherLocksIfOneFails(t *testing.T) {
	t.Parallel()
	server := shared.Redis(t)
	p := newQueueProcess(t, server, locks.Options{Lease: 5 * time.Second, Renew: time.Second})
	failing := errors.New("this node does not answer")
	var renewed atomic.Int64
	p.client.AddHook(hook{pipeline: func(ctx context.Context, next redis.ProcessPipelineHook, cmds []redis.Cmder) error {
		var others []redis.Cmder
		for _, cmd := range cmds {
			if fmt.Sprint(cmd.Args()[3]) == "lock:{failing}" {
				cmd.SetErr(failing)
			} else {
				others = append(others, cmd)
			}
		}
		if len(others) == 0 {
			return failing
		}
		renewed.Add(1)
		return errors.Join(failing, next(ctx, others))
	}})
	lost, kept := mustLock(t, p, "lock:{failing}"), mustLock(t, p, queueKey)
	<-lost.Context().Done()
	if cause := context.Cause(lost.Context()); !errors.Is(cause, locks.ErrLeaseLost) {
		t.Errorf("the lease that could not be renewed ended with %v, want ErrLeaseLost", cause)
	}
	serverstest.Eventually(t, "the other lock is renewed past its first lease", func() bool { return renewed.Load() >= 6 })
	if err := kept.Context().Err(); err != nil {
		t.Errorf("the lease of the other lock ended: %v", err)
	}
	mustUnlock(t, kept)
}

func TestRedisQueueRenewsManyLocksInFewRoundTrips(t *testing.T) {
	t.Parallel()
	server := shared.Redis(t)
	p := newQueueProcess(t, server, locks.Options{Lease: time.Minute, Renew: time.Second})
	const held = 1000
	var roundTrips, renewals atomic.Int64
	p.client.AddHook(hook{pipeline: func(ctx context.Context, next redis.ProcessPipelineHook, cmds []redis.Cmder) error {
		roundTrips.Add(1)
		err := next(ctx, cmds)
		renewals.Add(int64(len(cmds)))
		return err
	}})
	leases := make([]*locks.Lease, held)
	var all sync.WaitGroup
	few := make(chan struct{}, 20) // at a time: a thousand would wait for connections
	for i := range leases {
		few <- struct{}{}
		all.Go(func() {
			defer func() { <-few }()
			lease, err := p.Lock(patient(t), fmt.Sprintf("lock:{%d}", i))
			if err != nil {
				t.Error(err)
			}
			leases[i] = lease
		})
	}
	all.Wait()
	if t.Failed() {
		return
	}
	serverstest.Eventually(t, "each lock is renewed", func() bool { return renewals.Load() >= held })
	if n := roundTrips.Load(); n > held/10 {
		t.Errorf("%d round trips for %d renewals, want at most %d", n, renewals.Load(), held/10)
	}
	for _, lease := range leases {
		mustUnlock(t, lease)
	}
}
