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
	undoPause    = 100 * time.Millisecond // between two attempts of one undo, at least
	minUndoPause = 5 * time.Millisecond   // after a failed attempt, however many undos are pending
	maxUndos     = 4096                   // Lock fails while this many are pending
)

var errTooManyUndos = errors.New("too many locks wait to be released: the lock service does not answer")

// undoer releases what a lock service may have granted without a reply, and what an Unlock could not release. If the
// first attempt fails, one goroutine goes on in the background until nothing is left to undo. A Locker has one undoer
// for each service it depends on, so that a service that does not answer does not delay what has to be undone on
// another.
//
// An undoer never drops an undo that is still needed, because the lock would stay held. It is bounded nevertheless:
// Lock must fail while it is full, and an Unlock can fail only once for each lock that is held.
type undoer struct {
	lease   time.Duration   // after which an undo is not needed any more; 0 if it is needed until it succeeds
	ctx     context.Context // ends with close
	cancel  context.CancelFunc
	working sync.WaitGroup

	mu      sync.Mutex
	pending list.List // of pendingUndo, the next one first; work runs while it is not empty
}

type pendingUndo struct {
	added time.Time
	undo  func(context.Context) error
}

// newUndoer makes an undoer for locks that end by themselves after lease, or never if lease is 0.
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

// full returns an error if a Lock that fails might leave something behind. Lock then has to fail before it sends
// anything.
func (u *undoer) full() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.pending.Len() >= maxUndos {
		return errTooManyUndos
	}
	return nil
}

// takeBack undoes a grant whose reply was lost. It makes one attempt while the caller waits, so that nothing is left
// behind once Lock has failed, and goes on in the background if that fails. undo must do no harm if it is carried out
// several times.
func (u *undoer) takeBack(ctx context.Context, undo func(context.Context) error) {
	if tryUndo(context.WithoutCancel(ctx), undo) != nil {
		u.add(undo, u.pending.PushBack)
	}
}

// takeBackLater calls undo in the background until it succeeds, or is not needed any more. It is for an Unlock that
// has failed. Its next attempt comes before those of failed Locks, most of which were granted nothing.
func (u *undoer) takeBackLater(undo func(context.Context) error) {
	u.add(undo, u.pending.PushFront)
}

func (u *undoer) add(undo func(context.Context) error, push func(any) *list.Element) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ctx.Err() != nil {
		return
	}
	added := push(pendingUndo{time.Now(), undo})
	if u.pending.Len() == 1 {
		u.working.Go(func() { u.work(added) })
	}
}

// work makes attempts until nothing is pending.
func (u *undoer) work(next *list.Element) {
	pause := undoPause
	for next != nil {
		_ = sleep(u.ctx, pause)
		err := tryUndo(u.ctx, next.Value.(pendingUndo).undo)
		next, pause = u.next(next, err)
	}
}

// next takes the result of an attempt, and returns what to try next after which pause, or nil if nothing is pending.
// The pauses of a round of failed attempts add up to that of a single undo: on a Cluster, only a part of the service
// may be away, and an undo for another part should not wait for long.
func (u *undoer) next(tried *list.Element, err error) (next *list.Element, pause time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ctx.Err() != nil || errors.Is(err, redis.ErrClosed) {
		u.pending.Init() // no attempt will succeed any more
		return nil, 0
	}
	if err == nil {
		u.pending.Remove(tried)
		return u.pending.Front(), 0
	}
	pause = max(undoPause/time.Duration(u.pending.Len()), minUndoPause)
	u.pending.MoveToBack(tried)
	u.forget()
	return u.pending.Front(), pause
}

// forget drops what is not needed any more.
func (u *undoer) forget() {
	if u.lease == 0 {
		return
	}
	for place := u.pending.Front(); place != nil; {
		after := place.Next()
		if time.Since(place.Value.(pendingUndo).added) > u.lease {
			u.pending.Remove(place)
		}
		place = after
	}
}

func tryUndo(ctx context.Context, undo func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, undoLimit)
	defer cancel()
	return undo(ctx)
}
