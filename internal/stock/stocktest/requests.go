package stocktest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"stock/internal/servers/serverstest"
	"stock/internal/stock"
)

// Sell deducts, and fails the test if that fails.
func Sell(t testing.TB, d stock.Deducter, req stock.Request) {
	t.Helper()
	if _, err := d.Deduct(t.Context(), req); err != nil {
		t.Fatalf("Deduct %+v: %v", req, err)
	}
}

// RetryInProgress sends a request with a key again until no earlier request with this key is in progress.
func RetryInProgress(t testing.TB, d stock.Deducter, req stock.Request) (receipt stock.Receipt) {
	t.Helper()
	serverstest.Eventually(t, "no request with the same key is in progress", func() bool {
		var err error
		receipt, err = d.Deduct(t.Context(), req)
		if err != nil && !errors.Is(err, stock.ErrInProgress) {
			t.Fatal(err)
		}
		return err == nil
	})
	return receipt
}

// Once returns a pause that calls do when a request first passes a pause point. Each request needs its own.
func Once(at stock.Point, do func(context.Context) error) stock.PauseFunc {
	done := false
	return func(ctx context.Context, point stock.Point) error {
		if done || point != at {
			return nil
		}
		done = true
		return do(ctx)
	}
}

// Barrier returns a function for Once that waits until n requests have called it.
func Barrier(n int) func(context.Context) error {
	var all sync.WaitGroup
	all.Add(n)
	return func(context.Context) error {
		all.Done()
		all.Wait()
		return nil
	}
}

// Parked is a deduction that has stopped at a pause point. Like a stopped process, it does not notice that its context
// ends.
type Parked struct {
	Receipt stock.Receipt // set once Resume has returned

	goOn chan struct{}
	done chan error
}

// Park starts a deduction and waits until it stops at a pause point.
func Park(t testing.TB, d stock.Deducter, req stock.Request, at stock.Point) *Parked {
	t.Helper()
	return ParkWhen(t, d, req, func(point stock.Point) bool { return point == at })
}

// ParkWhen starts a deduction and waits until it stops at the first pause point for which stop reports true.
func ParkWhen(t testing.TB, d stock.Deducter, req stock.Request, stop func(stock.Point) bool) *Parked {
	t.Helper()
	p := &Parked{goOn: make(chan struct{}), done: make(chan error, 1)}
	reached := make(chan struct{})
	stopped := false
	req.Pause = func(_ context.Context, point stock.Point) error {
		if !stopped && stop(point) {
			stopped = true
			close(reached)
			<-p.goOn
		}
		return nil
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	go func() {
		receipt, err := d.Deduct(ctx, req)
		p.Receipt = receipt
		p.done <- err
	}()
	select {
	case <-reached:
	case err := <-p.done:
		t.Fatalf("the request ended before it stopped: %v", err)
	}
	return p
}

// Resume lets the deduction go on and returns its error.
func (p *Parked) Resume() error {
	close(p.goOn)
	return <-p.done
}
