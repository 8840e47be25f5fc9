package locks

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Limits of undoing what may have been granted without a reply.
const (
	undoLimit    = 250 * time.Millisecond // for one attempt
	undoPause    = 100 * time.Millisecond // after a failed attempt; each pause is twice the one before
	maxUndoPause = 500 * time.Millisecond // bounds the time from the end of an outage to the next attempt
	maxUndos     = 4096                   // pending in one undoer
)

// undoer releases what a lock service may have granted without a reply, and what an Unlock could not release. If the
// service does not answer at once, it goes on in the background: in one goroutine, which makes one attempt after the
// other, and ends when nothing is left to undo. A Locker has one undoer for each service it depends on, so that a
// service that is away does not delay what has to be undone on another.
//
// Nothing has to be undone once its lease has ended. So the undoer forgets what is that old, and if there is too much,
// it forgets the oldest first.
type undoer struct {
	lease   time.Duration
	ctx     context.Context // ends with close
	cancel  context.CancelFunc
	working sync.WaitGroup

	mu      sync.Mutex
	pending list.List // of pendingUndo, in the order in which their leases end; work runs while it is not empty
	away    bool      // the last attempt failed, and will be repeated
}

type pendingUndo struct {
	ends time.Time // the lease has ended by then
	undo func(context.Context) error
}

func newUndoer(lease time.Duration) *undoer {
	u := &undoer{lease: lease}
	u.ctx, u.cancel = context.WithCancel(context.Background())
	return u
}

// close ends the work in the background.
func (u *undoer) close() {
	u.mu.Lock()
	u.cancel()
	u.mu.Unlock()
	u.working.Wait()
}

// takeBack undoes a grant whose reply was lost. It makes one attempt while the caller waits, so that nothing is left
// behind once Lock has failed. It goes on in the background if the service does not answer, and leaves all of the work
// to the background while the service is known not to answer. undo must do no harm if it is carried out several times.
func (u *undoer) takeBack(ctx context.Context, undo func(context.Context) error) {
	if u.isAway() || tryUndo(context.WithoutCancel(ctx), undo) != nil {
		u.takeBackLater(undo)
	}
}

// takeBackLater calls undo, for which an attempt has just failed, in the background until it succeeds or the lease has
// ended by itself.
func (u *undoer) takeBackLater(undo func(context.Context) error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ctx.Err() != nil {
		return
	}
	u.away = true
	last := u.pending.PushBack(pendingUndo{time.Now().Add(u.lease), undo})
	switch n := u.pending.Len(); {
	case n == 1:
		u.working.Go(func() { u.work(last) })
	case n > maxUndos:
		u.pending.Remove(u.pending.Front())
	}
}

func (u *undoer) isAway() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.away
}

// work makes attempts until nothing is pending. It pauses after each one that failed, and tries another one next: on a
// Cluster, only a part of the service may be away.
func (u *undoer) work(place *list.Element) {
	pause := undoPause
	_ = sleep(u.ctx, pause)
	for place != nil {
		err := tryUndo(u.ctx, place.Value.(pendingUndo).undo)
		place = u.next(place, err)
		if err == nil {
			pause = undoPause
			continue
		}
		_ = sleep(u.ctx, pause)
		pause = min(2*pause, maxUndoPause)
	}
}

// next takes the result of an attempt, and returns what to try next, or nil if nothing is pending.
func (u *undoer) next(tried *list.Element, err error) *list.Element {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	for first := u.pending.Front(); first != nil && now.After(first.Value.(pendingUndo).ends); first = u.pending.Front() {
		u.pending.Remove(first)
	}
	next := tried.Next() // nil if it was removed
	if err == nil {
		u.pending.Remove(tried)
	}
	if u.ctx.Err() != nil || errors.Is(err, redis.ErrClosed) {
		u.pending.Init() // no attempt will succeed any more
		next = nil
	}
	if next == nil {
		next = u.pending.Front()
	}
	u.away = err != nil && next != nil
	return next
}

func tryUndo(ctx context.Context, undo func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, undoLimit)
	defer cancel()
	return undo(ctx)
}
