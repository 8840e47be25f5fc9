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

// releaseTimeouts are the limits of releases that are under way. Releases that begin within a twentieth of the limit
// share one timer. A timer for each would cost more than the rest of the release: it would be the first to fire in a
// process that is idle otherwise, and the runtime wakes a thread whenever that changes.
var releaseTimeouts struct {
	mu     sync.Mutex
	shared context.Context
	until  time.Time // it serves releases that begin before then
}

// releaseContext has the values of a lease's context, and ends with one of releaseTimeouts.
type releaseContext struct {
	context.Context
	values context.Context
}

func (c releaseContext) Value(key any) any { return c.values.Value(key) }

func newReleaseContext(lease context.Context) context.Context {
	r := &releaseTimeouts
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); !now.Before(r.until) {
		shared, cancel := context.WithTimeout(context.Background(), releaseLimit)
		context.AfterFunc(shared, cancel)
		r.shared, r.until = shared, now.Add(releaseLimit/20)
	}
	return releaseContext{r.shared, context.WithoutCancel(lease)}
}

// Lease is a granted lock.
type Lease struct {
	ctx     context.Context
	cancel  context.CancelCauseFunc
	token   uint64
	release func(context.Context) error
	// Called when the lease is abandoned, and when its deadline passes. They may be nil.
	abandoned, expired func()
	// stopWatching is called first when the lease is unlocked or abandoned: see context.AfterFunc. It may be nil.
	stopWatching func()
	// members are the leases that this one stands for, if it stands for others (see Multi and etcd's waiters). Its
	// deadline is then the earliest of theirs.
	members []*Lease

	mu       sync.Mutex
	deadline time.Time     // zero if the lock does not end by itself
	timer    *time.Timer   // ends ctx at the deadline
	renewals *time.Timer   // makes the next renewal; nil unless keepAlive renews the lease
	over     chan struct{} // closed to stop what others do in the background while the lock is held
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
		l.err = l.release(newReleaseContext(l.ctx))
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

// end stops the renewals, the timer and what waits for the end of ctx.
func (l *Lease) end() {
	if l.stopWatching != nil {
		l.stopWatching()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended {
		l.ended = true
		close(l.over)
	}
	if l.timer != nil {
		l.timer.Stop()
	}
	if l.renewals != nil {
		l.renewals.Stop()
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
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewals = time.AfterFunc(o.Renew, func() {
		pause, goOn := l.renew(o, renew)
		l.mu.Lock()
		defer l.mu.Unlock()
		if goOn && !l.ended {
			l.renewals.Reset(pause)
		}
	})
}

// renew renews the lease once, and returns whether and after which pause to do that again.
func (l *Lease) renew(o Options, renew func(context.Context) error) (pause time.Duration, goOn bool) {
	sent := time.Now()
	if !sent.Before(l.Deadline()) {
		return 0, false // lost: another client may hold the lock
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.ctx), o.Renew)
	defer cancel()
	switch err := renew(ctx); {
	case err == nil:
		l.extend(o.guaranteed(sent))
		return o.Renew, true
	case errors.Is(err, ErrLeaseLost):
		l.lose()
		return 0, false
	}
	return o.Renew / 4, true
}
