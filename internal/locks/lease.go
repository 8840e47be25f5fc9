package locks

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Lease is a granted lock.
type Lease struct {
	ctx     context.Context
	cancel  context.CancelCauseFunc
	token   uint64
	release func(context.Context) error
	// Told that nobody will give the lock back, and that its deadline has passed; nil where nobody needs to know.
	abandoned, expired func()
	// members are those of a lease that stands for several (see Multi), which have the deadlines.
	members []*Lease

	mu       sync.Mutex
	deadline time.Time   // zero where the lock does not end by itself
	timer    *time.Timer // ends ctx at the deadline
	over     chan struct{}
	ended    bool // over is closed: renewals have ended

	once sync.Once
	err  error
}

// newLease grants a lock until deadline, or for ever where deadline is zero. release gives the lock back on the server;
// it returns ErrLeaseLost where the lock was no longer ours.
func newLease(ctx context.Context, deadline time.Time, token uint64, release func(context.Context) error) *Lease {
	l := &Lease{token: token, release: release}
	l.begin(ctx, deadline)
	return l
}

func (l *Lease) begin(ctx context.Context, deadline time.Time) {
	l.deadline, l.over = deadline, make(chan struct{})
	l.ctx, l.cancel = context.WithCancelCause(ctx)
	switch {
	case deadline.IsZero():
	case time.Now().Before(deadline):
		l.timer = time.AfterFunc(time.Until(deadline), l.expire)
	default: // at once: a timer would let the holder begin
		l.timer = time.AfterFunc(0, l.expire)
		l.lose()
	}
}

func (l *Lease) expire() {
	l.lose()
	if l.expired != nil {
		l.expired()
	}
}

// Context ends when the lock can no longer be guaranteed, with the cause ErrLeaseLost, and when it is unlocked.
func (l *Lease) Context() context.Context { return l.ctx }

// Token is the fencing token: greater than that of every earlier grant of the same key, 0 where the lock has none.
func (l *Lease) Token() uint64 { return l.token }

// Deadline is until when the lock is guaranteed. A renewal puts it off. It is zero where the lock does not end by itself.
func (l *Lease) Deadline() time.Time {
	l.mu.Lock()
	earliest := l.deadline
	l.mu.Unlock()
	for _, member := range l.members {
		if d := member.Deadline(); earliest.IsZero() || !d.IsZero() && d.Before(earliest) {
			earliest = d
		}
	}
	return earliest
}

// Unlock gives the lock back, whatever became of the context given to Lock. It returns ErrLeaseLost where the lock had
// been lost before, and the server's error where the server could not be asked (the lease then ends by itself).
// Another call returns what the first one did.
func (l *Lease) Unlock() error {
	l.once.Do(func() {
		l.end()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(l.ctx), releaseLimit)
		defer cancel()
		l.err = l.release(ctx)
		l.cancel(nil)
	})
	return l.err
}

// Abandon leaves the lock to end by itself: it is renewed no more and not given back. It is for a holder whose last write
// may still be on its way, which the lock should outlast. A lock that does not end by itself is unlocked.
func (l *Lease) Abandon() {
	if l.Deadline().IsZero() {
		_ = l.Unlock() // nothing else would ever end it
		return
	}
	l.once.Do(func() {
		l.end()
		if l.abandoned != nil {
			l.abandoned()
		}
		l.cancel(nil)
	})
}

// end ends the renewals and the clock, before the lock is given back.
func (l *Lease) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended {
		l.ended = true
		close(l.over)
	}
	if l.timer != nil {
		l.timer.Stop()
	}
}

// extend puts the deadline off. A lease that has ended stays ended: another may have been granted the lock since.
func (l *Lease) extend(deadline time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended || !l.timer.Stop() {
		return
	}
	l.deadline = deadline
	l.timer.Reset(time.Until(deadline))
}

// lose ends the lease's context: the lock can no longer be guaranteed.
func (l *Lease) lose() { l.cancel(ErrLeaseLost) }

// keepAlive renews the lease in the background until it is unlocked, abandoned or lost: also after the context given to
// Lock has ended, since the holder may still be at work. renew asks the server to count the lease anew; it returns
// ErrLeaseLost where the lock is no longer ours, and any other error where that is not known: the lease then stands until
// its deadline, and is tried again.
func (l *Lease) keepAlive(o Options, renew func(context.Context) error) {
	go func() {
		timer := time.NewTimer(o.Renew)
		defer timer.Stop()
		for {
			select {
			case <-l.over:
				return
			case <-timer.C:
			}
			sent := time.Now()
			if !sent.Before(l.Deadline()) {
				return // lost: another may hold it
			}
			ctx, cancel := context.WithTimeout(context.WithoutCancel(l.ctx), o.Renew)
			err := renew(ctx)
			cancel()
			switch {
			case err == nil:
				l.extend(o.guaranteed(sent))
				timer.Reset(o.Renew)
			case errors.Is(err, ErrLeaseLost):
				l.lose()
				return
			default:
				timer.Reset(o.Renew / 4)
			}
		}
	}()
}
