package barrier_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"stock/loadtest/internal/barrier"
)

func TestSomethingIsDoneOnceWhenEveryMemberIsReady(t *testing.T) {
	t.Parallel()
	const members = 5
	var ready, done atomic.Int64
	meeting := barrier.New(members)
	var all sync.WaitGroup
	for i := range members {
		all.Go(func() {
			defer meeting.Leave(t.Context())
			if i == 0 {
				return // it left before
			}
			for range 2 {
				ready.Add(1)
				err := meeting.Meet(t.Context(), func(context.Context) error {
					if n := ready.Load(); n%(members-1) != 0 {
						t.Errorf("it was done when %d members were ready", n)
					}
					done.Add(1)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if done.Load() != 2 {
		t.Errorf("it was done %d times, want once for each meeting", done.Load())
	}
}

func TestAMemberWaitsNoLongerThanItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := barrier.New(2).Meet(ctx, func(context.Context) error { return nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}
