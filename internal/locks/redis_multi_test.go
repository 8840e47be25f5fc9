package locks_test

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/internal/locks"
	"stock/internal/must"
	"stock/internal/servers/serverstest"
)

// One master forgets the lock. The others still refuse the next client.
func TestRedisMultiOutlivesTheDataOfOneMaster(t *testing.T) {
	t.Parallel()
	masters := shared.Redlock(t, 3)
	holder := newRedisMultiOn(t, connectAll(t, masters), lasting)
	for i, master := range masters {
		lease := mustLock(t, holder, rungKey)
		del(t, connect(t, master), rungKey)
		wantWait(t, t.Context(), newRedisMultiOn(t, connectAll(t, masters), lasting), rungKey)
		for j, other := range masters {
			observer := connect(t, other)
			if j != i && !exists(t, observer, rungKey) {
				t.Errorf("master %d has not kept the key, after master %d forgot it and a second client gave up", j, i)
			}
			if j == i { // giving it back may go on in the background
				serverstest.Eventually(t, "the second client has given back what the forgetful master granted",
					func() bool { return !exists(t, observer, rungKey) })
			}
		}
		wantLeaseLost(t, lease.Unlock())
	}
}

func TestRedisMultiNeedsEveryMaster(t *testing.T) {
	t.Parallel()
	masters := shared.Redlock(t, 2)
	lock := newRedisMultiOn(t, connectAll(t, append(masters, nobody)), lasting)
	_, err := lock.Lock(patient(t), rungKey)
	if wantServiceError(t, err); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("Lock: %v, want that a master refuses the connection", err)
	}
	for i, master := range masters {
		if exists(t, connect(t, master), rungKey) {
			t.Errorf("master %d still has the key, which was not granted by all", i)
		}
	}
}

// Each caller is granted the key first by the master that the other asks last. A caller that kept what it has would
// wait for the other until its context ends.
func TestRedisMultiInOppositeOrdersDoesNotDeadlock(t *testing.T) {
	t.Parallel()
	const rounds = 50
	masters := shared.Redlock(t, 2)
	brief := locks.Options{Lease: time.Minute, Poll: time.Millisecond}
	done := make(chan error, 2)
	ctx := patient(t)
	for _, order := range [][]*redis.Options{{masters[0], masters[1]}, {masters[1], masters[0]}} {
		lock := newRedisMultiOn(t, connectAll(t, order), brief)
		go func() {
			done <- func() error {
				for range rounds {
					lease, err := lock.Lock(ctx, rungKey)
					if err != nil {
						return err
					}
					if err := lease.Unlock(); err != nil {
						return err
					}
				}
				return nil
			}()
		}()
	}
	for range 2 {
		must.Succeed(t, <-done)
	}
}
