package stocktest

import (
	"context"
	"sync"
	"testing"
	"time"

	"stock/internal/stock"
)

// Sell deducts, and fails the test if that fails.
func Sell(t testing.TB, d stock.Deducter, req stock.Request) {
	t.Helper()
	if _, err := d.Deduct(t.Context(), req); err != nil {
		t.Errorf("Deduct %+v: %v", req, err)
	}
}

// Start starts a deduction, whose answer comes later.
func Start(ctx context.Context, d stock.Deducter, req stock.Request) <-chan Answer {
	done := make(chan Answer, 1)
	go func() {
		receipt, err := d.Deduct(ctx, req)
		done <- Answer{receipt, err}
	}()
	return done
}

// WithWork returns the request with work to do inside its critical section, so little that it takes no time. Such a
// request is carried out by itself where others share a batch.
func WithWork(req stock.Request) stock.Request {
	req.Hold = time.Nanosecond
	return req
}

// Once returns a pause that calls do when a request is at a point for the first time. Each request needs its own.
func Once(at Point, do func(context.Context)) PauseFunc {
	var once sync.Once
	return func(ctx context.Context, point Point) {
		if point == at {
			once.Do(func() { do(ctx) })
		}
	}
}

// Barrier returns a function for Once that waits until n requests have called it.
func Barrier(n int) func(context.Context) {
	var all sync.WaitGroup
	all.Add(n)
	return func(context.Context) {
		all.Done()
		all.Wait()
	}
}

// Parked is a request that has stopped at a point. Like a stopped process, it does not notice that its context ends.
type Parked struct {
	Receipt stock.Receipt // set once Resume has returned

	goOn chan struct{}
	done chan error
}

// Park starts a deduction and waits until it stops at a point.
func Park(t testing.TB, d stock.Deducter, req stock.Request, at Point) *Parked {
	t.Helper()
	return ParkWhen(t, d, req, func(point Point) bool { return point == at })
}

// ParkWhen starts a deduction and waits until it stops at the first point for which stop reports true.
func ParkWhen(t testing.TB, d stock.Deducter, req stock.Request, stop func(Point) bool) *Parked {
	t.Helper()
	p, stopped := parkRequest(t, stop, func(ctx context.Context) (stock.Receipt, error) { return d.Deduct(ctx, req) })
	if !stopped {
		t.Fatalf("the request ended before it stopped: %+v, %v", p.Receipt, p.Resume())
	}
	return p
}

// parkRequest starts a request and waits until it stops at the first point for which stop reports true, or has ended.
func parkRequest(
	t testing.TB, stop func(Point) bool, send func(context.Context) (stock.Receipt, error),
) (p *Parked, isStopped bool) {
	t.Helper()
	p = &Parked{goOn: make(chan struct{}), done: make(chan error, 1)}
	reached, ended := make(chan struct{}), t.Context().Done()
	stopped := false
	ctx := WithPause(patient(t), func(_ context.Context, at Point) {
		if !stopped && stop(at) {
			stopped = true
			close(reached)
			select {
			case <-p.goOn:
			case <-ended: // the test has failed
			}
		}
	})
	go func() {
		receipt, err := send(ctx)
		p.Receipt = receipt
		p.done <- err
	}()
	select {
	case <-reached:
		return p, true
	case err := <-p.done:
		p.done <- err
		return p, false
	}
}

// Resume lets the request go on and returns its error.
func (p *Parked) Resume() error {
	close(p.goOn)
	return <-p.done
}
