package share_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"stock/internal/stock/share"
)

// takeAll takes as many connections for a key as it may have.
func takeAll(l *share.Limiter, key int64) (n int) {
	for l.TryAcquire(key) {
		n++
	}
	return n
}

// acquire waits in the background, and reports its name once it has its connection. It returns when it waits.
func acquire(t *testing.T, l *share.Limiter, name string, granted chan<- string, keys ...int64) {
	t.Helper()
	go func() {
		if err := l.Acquire(t.Context(), keys...); err == nil {
			granted <- name
		}
	}()
	synctest.Wait()
}

// wantGranted checks which requests have been granted, in this order.
func wantGranted(t *testing.T, granted <-chan string, want ...string) {
	t.Helper()
	synctest.Wait()
	var got []string
	for len(granted) > 0 {
		got = append(got, <-granted)
	}
	if !slices.Equal(got, want) {
		t.Errorf("granted: %q, want %q", got, want)
	}
}

func TestEveryKeyGetsFewerConnectionsThanAreFree(t *testing.T) {
	t.Parallel()
	l := share.New(32)
	for key, want := range []int{16, 8, 4, 2, 1, 1} { // whoever comes later gets half of what is left
		if got := takeAll(l, int64(key)); got != want {
			t.Errorf("key %d got %d connections, want %d", key, got, want)
		}
	}
	if takeAll(l, 9) != 0 {
		t.Error("a pool of 32 connections gave out 33")
	}
}

func TestAPoolOfOneConnectionIsUsed(t *testing.T) {
	t.Parallel()
	l := share.New(1)
	if got := takeAll(l, 1); got != 1 {
		t.Errorf("one item got %d connections, want 1", got)
	}
	if got := takeAll(l, 2); got != 0 {
		t.Errorf("another got %d, want 0", got)
	}
	l.Release(1)
	if got := takeAll(l, 2); got != 1 {
		t.Errorf("afterwards another got %d, want 1", got)
	}
}

func TestRequestsForAKeyAreGrantedInTheOrderOfArrival(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, granted := share.New(4), make(chan string, 10)
		takeAll(l, 1)
		for _, name := range []string{"first", "second", "third"} {
			acquire(t, l, name, granted, 1)
		}
		wantGranted(t, granted)
		for _, name := range []string{"first", "second", "third"} {
			l.Release(1)
			wantGranted(t, granted, name)
		}
	})
}

func TestARequestWhoseContextEndsLeavesTheQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, granted := share.New(2), make(chan string, 10)
		takeAll(l, 1)
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() { left <- l.Acquire(ctx, 1) }()
		synctest.Wait()
		acquire(t, l, "second", granted, 1)
		cancel()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("Acquire: %v", err)
		}
		if n := l.Waiting(); n != 1 {
			t.Errorf("%d requests wait, want 1", n)
		}
		l.Release(1)
		wantGranted(t, granted, "second")
	})
}

func TestAReleaseOfOneKeyGrantsToAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, granted := share.New(4), make(chan string, 10)
		takeAll(l, 1) // 2 of 4
		takeAll(l, 2) // 1 of the other 2
		acquire(t, l, "two", granted, 2)
		acquire(t, l, "one", granted, 1)
		l.Release(1)
		wantGranted(t, granted, "two") // both use one: the queue that came first
		l.Release(2)
		wantGranted(t, granted, "one")
	})
}

func TestAnOrderTakesOneConnectionAndCountsAgainstEachOfItsItems(t *testing.T) {
	t.Parallel()
	l := share.New(8)
	for range 4 {
		if !l.TryAcquire(1, 2) {
			t.Fatal("an order was refused")
		}
	}
	if l.TryAcquire(1, 2) || l.TryAcquire(1) || l.TryAcquire(2, 3) {
		t.Error("an item got more than its share")
	}
	if got := takeAll(l, 3); got != 2 {
		t.Errorf("another item got %d connections, want 2: a refused order took some", got)
	}
}

func TestAnOrderThatWaitsForOneItemIsNotInTheWayOfAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, granted := share.New(8), make(chan string, 10)
		takeAll(l, 2) // 4
		acquire(t, l, "order", granted, 1, 2)
		if got := takeAll(l, 1); got != 2 {
			t.Errorf("item 1 got %d connections, want 2", got)
		}
		acquire(t, l, "one", granted, 1)
		l.Release(1)
		wantGranted(t, granted, "one")
		l.Release(2)
		l.Release(2)
		wantGranted(t, granted, "order")
	})
}

func TestAnOrderKeepsItsPlaceWhenItMovesToTheQueueOfAnotherItem(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, granted := share.New(8), make(chan string, 10)
		takeAll(l, 1) // 4
		takeAll(l, 2) // 2, and 2 are free
		acquire(t, l, "order", granted, 2, 1)
		acquire(t, l, "later", granted, 1)
		l.Release(2) // now item 1 is the one that the order waits for
		wantGranted(t, granted)
		l.Release(1)
		wantGranted(t, granted, "order")
		l.Release(1)
		wantGranted(t, granted, "later")
	})
}

// Each item has more buyers than connections, so that one of the two is always at its limit.
func TestAnOrderOfTwoItemsInDemandIsGranted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := share.New(8)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		var buyers sync.WaitGroup
		for i := range 16 {
			buyers.Go(func() {
				item := int64(1 + i%2)
				for ctx.Err() == nil && l.Acquire(ctx, item) == nil {
					time.Sleep(time.Duration(1+i) * time.Millisecond)
					l.Release(item)
				}
			})
		}
		for range 100 {
			if err := l.Acquire(ctx, 1, 2); err != nil {
				t.Fatal("an order was not granted within a minute")
			}
			time.Sleep(time.Millisecond)
			l.Release(1, 2)
		}
		cancel()
		buyers.Wait()
	})
}

// Every request that is granted holds its connection for a moment. If a wake-up were lost, the test would not end.
func TestNoWakeUpIsLost(t *testing.T) {
	t.Parallel()
	const connections = 8
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	l := share.New(connections)
	var users sync.WaitGroup
	var inUse, granted, left atomic.Int64
	for user := range uint64(32) {
		users.Go(func() {
			random := rand.New(rand.NewPCG(seed, user))
			for range 2000 {
				keys := []int64{1 + random.Int64N(3)}
				if random.IntN(4) == 0 {
					keys = append(keys, 4+random.Int64N(2))
				}
				ctx, cancel := context.WithCancel(t.Context())
				if random.IntN(4) == 0 {
					go cancel()
				}
				if err := l.Acquire(ctx, keys...); err != nil {
					left.Add(1)
				} else {
					if inUse.Add(1) > connections {
						t.Error("more connections are in use than there are")
					}
					granted.Add(1)
					inUse.Add(-1)
					l.Release(keys...)
				}
				cancel()
			}
		})
	}
	users.Wait()
	if l.Waiting() != 0 || takeAll(l, 1) != connections/2 {
		t.Error("connections were lost")
	}
	t.Logf("%d granted, %d left", granted.Load(), left.Load())
}
