package fault

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
)

func TestAFaultStrikesOnceWhenEveryCellIsReady(t *testing.T) {
	t.Parallel()
	const cells = 5
	var ready, strikes atomic.Int64
	together := newCompany(cells)
	var all sync.WaitGroup
	for i := range cells {
		all.Go(func() {
			defer together.leave(t.Context())
			if i == 0 {
				return // its story ended before the fault
			}
			for range 2 {
				ready.Add(1)
				err := together.together(t.Context(), func(context.Context) error {
					if n := ready.Load(); n%(cells-1) != 0 {
						t.Errorf("the fault struck when %d cells were ready", n)
					}
					strikes.Add(1)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if strikes.Load() != 2 {
		t.Errorf("the faults struck %d times, want once each", strikes.Load())
	}
}

func TestEveryCellLearnsThatTheFaultFailed(t *testing.T) {
	t.Parallel()
	failed := errors.New("no such process")
	together := newCompany(2)
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			err := together.together(t.Context(), func(context.Context) error { return failed })
			if !errors.Is(err, failed) {
				t.Errorf("got %v, want %v", err, failed)
			}
		})
	}
	all.Wait()
}

func TestACellThatWaitsForTheFaultEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := newCompany(2).together(ctx, func(context.Context) error { return nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}
