package lockstest

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"stock/internal/locks"
	"stock/internal/servers/serverstest"
	"stock/internal/tcpproxy"
)

// basics tests what every lock is for.
var basics = []conformance{
	{"grants one holder at a time", false, oneHolder},
	{"grants different keys at the same time, however similar", false, differentKeys},
	{"stops waiting when its context ends and leaves nothing behind", false, waitEnds},
	{"leaves nothing behind whenever its context ends", false, lockCancelled},
	{"refuses a context that has ended", false, endedContext},
	{"unlocks once however often Unlock is called", false, unlockTwice},
	{"unlocks after the request was cancelled", false, unlockAfterCancel},
	{"ends the lease's context with the request and with Unlock", false, leaseContext},
	{"is re-entrant if and only if it says so", false, lockAgainWhileHeld},
	{"cleans up on the server", true, cleansUp},
	{"keeps few connections and closes them", true, connections},
}

func oneHolder(t *testing.T, s Subject, d Deployment) {
	contend(t, s, d, 20, func(_ int, l locks.Locker, key string) (*locks.Lease, error) { return l.Lock(Patient(t), key) })
}

const contenders = 8

// contend makes contenders lock a key in turn, and checks that there is one holder at a time, and that tokens rise.
func contend(
	t *testing.T, s Subject, d Deployment, rounds int,
	lock func(contender int, l locks.Locker, key string) (*locks.Lease, error),
) {
	clients := []locks.Locker{client(t, d, long), client(t, d, long)}
	key := freshKey()
	var holders atomic.Int32
	// Guarded by the lock under test, which the race detector checks too.
	granted := 0
	var last uint64
	var wg sync.WaitGroup
	for i := range contenders {
		wg.Go(func() {
			for range rounds {
				lease, err := lock(i, clients[i%2], key)
				if err != nil {
					t.Errorf("Lock: %v", err)
					return
				}
				if n := holders.Add(1); n != 1 {
					t.Errorf("%d holders at once", n)
				}
				switch token := lease.Token(); {
				case s.Tokens && token <= last:
					t.Errorf("token %d after %d, want a greater one", token, last)
				case !s.Tokens && token != 0:
					t.Errorf("token %d, want 0: this lock has no tokens", token)
				}
				last = lease.Token()
				granted++
				holders.Add(-1)
				MustUnlock(t, lease)
			}
		})
	}
	wg.Wait()
	if granted != contenders*rounds {
		t.Errorf("%d grants, want %d", granted, contenders*rounds)
	}
	awaitFree(t, d, key)
}

func differentKeys(t *testing.T, _ Subject, d Deployment) {
	long200 := strings.Repeat("long", 50)
	var leases []*locks.Lease
	l, ctx := client(t, d, long), Patient(t)
	for _, key := range []string{
		"", ".", "..", "lock:{1}", "a/b", "a", "%", "%2F", "ä", "\x00", "a\x00b", "a\x00c",
		"names", "Names", "NAMES", "namès", "names ", long200, long200 + "er",
	} {
		leases = append(leases, lock(t, ctx, l, key))
	}
	for _, lease := range leases {
		MustUnlock(t, lease)
	}
}

func waitEnds(t *testing.T, s Subject, d Deployment) {
	l, key := client(t, d, long), freshKey()
	other := client(t, d, long)
	holder := lock(t, Patient(t), l, key)
	before := s.left(t, d, key)
	for _, waiter := range []locks.Locker{l, other} {
		for _, cause := range []error{context.DeadlineExceeded, context.Canceled} {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			if errors.Is(cause, context.Canceled) {
				ctx, cancel = context.WithCancel(t.Context())
				time.AfterFunc(50*time.Millisecond, cancel)
			}
			_, err := waiter.Lock(ctx, key)
			cancel()
			if !errors.Is(err, locks.ErrNotAcquired) || !errors.Is(err, cause) {
				t.Errorf("Lock while another client holds it: %v, want ErrNotAcquired joined with %v", err, cause)
			}
			serverstest.Eventually(t, "a caller that gave up has left nothing behind", func() bool {
				return len(s.left(t, d, key)) == len(before)
			})
		}
	}
	MustUnlock(t, holder)
	awaitFree(t, d, key)
	MustUnlock(t, lock(t, Patient(t), l, key))
}

func lockCancelled(t *testing.T, s Subject, d Deployment) {
	s.needs(t, TakesBack)
	l, key := client(t, d, long), freshKey()
	random := rand.New(rand.NewPCG(1, 1))
	for range 50 {
		ctx, cancel := context.WithCancel(t.Context())
		timer := time.AfterFunc(time.Duration(random.IntN(int(2*time.Millisecond))), cancel)
		lease, err := l.Lock(ctx, key)
		timer.Stop()
		cancel()
		switch {
		case err == nil:
			MustUnlock(t, lease)
		case !errors.Is(err, locks.ErrNotAcquired) || !errors.Is(err, context.Canceled):
			t.Fatalf("Lock: %v, want ErrNotAcquired joined with context.Canceled", err)
		}
	}
	awaitFree(t, d, key)
	MustUnlock(t, lock(t, Patient(t), l, key))
}

func endedContext(t *testing.T, _ Subject, d Deployment) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	key := freshKey()
	_, err := client(t, d, long).Lock(ctx, key)
	if !errors.Is(err, locks.ErrNotAcquired) || !errors.Is(err, context.Canceled) {
		t.Errorf("Lock: %v, want ErrNotAcquired joined with context.Canceled", err)
	}
	if d.Held(t, key) {
		t.Error("a caller whose Lock failed holds the lock")
	}
}

func unlockTwice(t *testing.T, _ Subject, d Deployment) {
	l, ctx, key := client(t, d, long), Patient(t), freshKey()
	first := lock(t, ctx, l, key)
	MustUnlock(t, first)
	second := lock(t, ctx, l, key)
	MustUnlock(t, first) // must not take the lock from the second
	if !d.Held(t, key) {
		t.Error("a second Unlock released the lock of the next holder")
	}
	MustUnlock(t, second)
}

func unlockAfterCancel(t *testing.T, _ Subject, d Deployment) {
	ctx, cancel := context.WithCancel(Patient(t))
	key := freshKey()
	lease := lock(t, ctx, client(t, d, long), key)
	cancel()
	MustUnlock(t, lease)
	if d.Held(t, key) {
		t.Error("the lock of a cancelled request is still held")
	}
}

func leaseContext(t *testing.T, _ Subject, d Deployment) {
	l := client(t, d, long)
	ctx, cancel := context.WithCancel(Patient(t))
	cancelled := lock(t, ctx, l, freshKey())
	if err := cancelled.Context().Err(); err != nil {
		t.Errorf("the context of a held lock has ended: %v", err)
	}
	cancel()
	<-cancelled.Context().Done()
	MustUnlock(t, cancelled)

	unlocked := lock(t, Patient(t), l, freshKey())
	MustUnlock(t, unlocked)
	if unlocked.Context().Err() == nil {
		t.Error("the context of a released lock has not ended")
	}
}

func lockAgainWhileHeld(t *testing.T, s Subject, d Deployment) {
	l, key := client(t, d, long), freshKey()
	outer := lock(t, Patient(t), l, key)
	if s.Reentrant {
		MustUnlock(t, lock(t, outer.Context(), l, key))
		if !d.Held(t, key) {
			t.Error("the inner Unlock released the lock of the outer holder")
		}
	} else {
		WantWait(t, outer.Context(), l, key)
	}
	WantWait(t, t.Context(), l, key)
	MustUnlock(t, outer)
	awaitFree(t, d, key)
}

// waitInVain waits for a key that another client holds, and gives up.
func waitInVain(t *testing.T, l, other locks.Locker, key string) {
	holder := lock(t, Patient(t), other, key)
	WantWait(t, t.Context(), l, key)
	MustUnlock(t, holder)
}

// waitAndGet waits for a key that another client holds, and is granted it.
func waitAndGet(t *testing.T, l, other locks.Locker, key string) {
	holder := lock(t, Patient(t), other, key)
	var wg sync.WaitGroup
	wg.Go(func() {
		lease, err := l.Lock(Patient(t), key)
		if err != nil {
			t.Errorf("Lock: %v", err)
			return
		}
		MustUnlock(t, lease)
	})
	MustUnlock(t, holder)
	wg.Wait()
}

func cleansUp(t *testing.T, s Subject, d Deployment) {
	s.needs(t, TakesBack)
	l, other, key := client(t, d, long), client(t, d, long), freshKey()
	waitAndGet(t, l, other, key)
	waitInVain(t, l, other, key)
	serverstest.Eventually(t, "nothing is left on the server", func() bool { return len(s.left(t, d, key)) == 0 })
}

func connections(t *testing.T, _ Subject, d Deployment) {
	const rounds = 20
	p := tcpproxy.New(t, d.Addresses()...)
	t.Run("in use", func(t *testing.T) {
		l, other := clientAt(t, d, p.Addresses(), long), client(t, d, long)
		use := func() {
			// Each has its own key: through a proxy, a late request may be carried out after its undo (see RedisLua).
			waitInVain(t, l, other, freshKey())
			waitAndGet(t, l, other, freshKey())
		}
		use()
		before := p.Open()
		for range rounds {
			use()
		}
		// The pool may grow a little when a grant is undone in the background.
		serverstest.Eventually(t, "the number of connections does not grow with the number of locks", func() bool {
			return p.Open() <= before+rounds/4
		})
	})
	serverstest.Eventually(t, "all connections are closed", func() bool { return p.Open() == 0 })
}
