package locks

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// pulse cancels waits when the lock service stops answering, which a watch does not report. While anybody in this
// process waits, it sends the service a small request now and then. If no answer comes within answerLimit, it cancels
// all waits; until then it retries, so that a short outage goes unnoticed.
type pulse struct {
	ask   func(context.Context) error
	every time.Duration

	mu   sync.Mutex
	beat *beat // of the current waits; its context has ended if there are none
}

// beat is what simultaneous waits share.
type beat struct {
	ctx   context.Context
	end   context.CancelCauseFunc
	waits int
}

func newPulse(o Options, ask func(context.Context) error) *pulse {
	return &pulse{ask: ask, every: min(o.Renew, answerLimit)}
}

// watch returns a context for a wait. It ends with ctx, and when the service stops answering; its cause is then the
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
		if err := p.awaitAnswer(b.ctx); err != nil {
			b.end(fmt.Errorf("the lock service stopped answering: %w", err))
		}
	}
}

// awaitAnswer asks until the service answers, or answerLimit has passed.
func (p *pulse) awaitAnswer(ctx context.Context) error {
	for deadline := time.Now().Add(answerLimit); ; {
		_, err := withAnswerLimit(ctx, func(ctx context.Context) (struct{}, error) { return struct{}{}, p.ask(ctx) })
		if err == nil || !time.Now().Before(deadline) {
			return err
		}
		if err := sleep(ctx, undoPause); err != nil {
			return err // nobody waits any more
		}
	}
}

// waitError returns why a wait under a context of watch failed: because the caller's context ended, or because of the
// service.
func waitError(ctx, waiting context.Context, err error) error {
	if cause := ended(ctx); cause != nil {
		return errors.Join(cause, err)
	}
	if cause := context.Cause(waiting); cause != nil {
		return cause // err only says that the wait was cancelled
	}
	return err
}
