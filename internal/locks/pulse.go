package locks

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// pulse ends waits for a service that has died, of which a watch on it says nothing. While anybody waits it asks the service
// something now and then, once for all who wait in this process, wherever they do. Where no answer comes for answerLimit
// it ends their waits: a service that is back by then was not missed.
type pulse struct {
	ask   func(context.Context) error
	every time.Duration

	mu   sync.Mutex
	beat *beat // of those who wait now; over where nobody does
}

// beat is what those who wait at the same time have in common.
type beat struct {
	ctx   context.Context
	end   context.CancelCauseFunc
	waits int
}

// newPulse makes a pulse that finds out about a dead service long before those who wait for it lose their patience.
func newPulse(o Options, ask func(context.Context) error) *pulse {
	return &pulse{ask: ask, every: min(o.Renew, answerLimit)}
}

// watch returns a context for a wait. It ends with ctx, and when the service does not answer: its cause is then the
// service's error. The caller must call stop when the wait is over.
func (p *pulse) watch(ctx context.Context) (waiting context.Context, stop func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.beat == nil || p.beat.ctx.Err() != nil {
		p.beat = &beat{}
		p.beat.ctx, p.beat.end = context.WithCancelCause(context.Background())
		go p.run(p.beat)
	}
	b := p.beat
	b.waits++
	waiting, cancel := context.WithCancelCause(ctx)
	unfollow := context.AfterFunc(b.ctx, func() { cancel(context.Cause(b.ctx)) })
	return waiting, func() {
		unfollow()
		cancel(nil)
		p.mu.Lock()
		defer p.mu.Unlock()
		if b.waits--; b.waits == 0 {
			b.end(nil)
		}
	}
}

func (p *pulse) run(b *beat) {
	for sleep(b.ctx, p.every) == nil {
		if err := p.await(b.ctx); err != nil {
			b.end(fmt.Errorf("the service does not answer any more: %w", err))
		}
	}
}

// await asks until there is an answer, for answerLimit.
func (p *pulse) await(ctx context.Context) error {
	for deadline := time.Now().Add(answerLimit); ; {
		_, err := inTime(ctx, func(ctx context.Context) (struct{}, error) { return struct{}{}, p.ask(ctx) })
		if err == nil || !time.Now().Before(deadline) {
			return err
		}
		if err := sleep(ctx, undoPause); err != nil {
			return err // nobody waits any more
		}
	}
}

// failure is why a wait failed that was watched over: the end of the caller's context, or what ails the service.
func failure(ctx, waiting context.Context, err error) error {
	if cause := ended(ctx); cause != nil {
		return errors.Join(cause, err)
	}
	if cause := context.Cause(waiting); cause != nil {
		return cause // err only says that the wait was ended
	}
	return err
}
