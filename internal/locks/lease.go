package locks

import (
	"context"
	"errors"
	"sync"
	"time"
)

// releaseLimit bounds a release. A release does not use the request's context: a request that was cancelled must still
// release its lock.
const releaseLimit = 2 * time.Second

// Lease is a granted lock.
type Lease struct {
	ctx     context.Context
	cancel  context.CancelCauseFunc
	token   uint64
	release func(context.Context) error
	// Called when the lease is abandoned, and when its deadline passes. They may be nil.
	abandoned, expired func()
	// members are the leases that this one stands for, if it stands for others (see Multi and Reentrant). Its
	// deadline is then the earliest of theirs.
	members []*Lease

	mu       sync.Mutex
	deadline time.Time     // zero if the lock does not end by itself
	timer    *time.Timer   // ends ctx at the deadline
	over     chan struct{} // closed to stop the renewals
	ended    bool          // over is closed

	once sync.Once // of Unlock or Abandon
	err  error     // of Unlock
}

// newLease makes the lease of a lock that is held until deadline, or for ever if deadline is zero. release releases
// the lock on the server; it returns ErrLeaseLost if the lock was no longer ours.
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
	default: // until the timer fires, the holder could start to work
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

// Context ends when the lock can no longer be guaranteed, with the cause ErrLeaseLost, and when the lock is released.
func (l *Lease) Context() context.Context { return l.ctx }

// Token returns the fencing token: greater than that of every earlier grant of the same key, or 0 if the lock has none.
func (l *Lease) Token() uint64 { return l.token }

// Deadline returns the time until which the lock is guaranteed. A renewal moves it. It is zero if the lock does not
// end by itself.
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

// Unlock releases the lock, even if the context given to Lock has ended. It returns ErrLeaseLost if the lock was lost
// before, and the server's error if the server could not be asked. Then it is asked again in the background until the
// lease has ended, unless the lock's comment says otherwise. Further calls return what the first one did.
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

// Abandon leaves the lock to end by itself: it is neither renewed nor released. Use it when the last write may still
// be on its way and the lock should outlast it. A lock that does not end by itself is released.
func (l *Lease) Abandon() {
	if l.Deadline().IsZero() {
		_ = l.Unlock()
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

// end stops the renewals and the timer.
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

// extend moves the deadline. A lease that has ended stays ended: another client may have been granted the lock since.
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

// keepAlive renews the lease in the background until it is unlocked, abandoned or lost. It goes on after the context
// given to Lock has ended, since the holder may still be working. renew asks the server to start the lease anew; it
// returns ErrLeaseLost if the lock is no longer ours. After any other error it is called again; the lease stands until
// its deadline.
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
				return // lost: another client may hold the lock
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
