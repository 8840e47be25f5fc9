package stocktest

import (
	"context"
	"errors"
	"testing"
	"time"

	"stock/internal/must"
	"stock/internal/stock"
)

// triesLocked sends requests that do not wait while another one holds the lock.
func (s subject) triesLocked(t *testing.T) {
	a, b := s.newItem(t, 4), s.newItem(t, 4)
	replicas := s.sellers()
	holder := s.park(t, 0, stock.Request{GoodsID: b, Count: 1}, BeforeWrite)
	ctx := stock.LimitWait(patient(t), 0)
	for replica := range replicas {
		s.wantBusyAtOnce(t, "a deduction", func() error {
			return (<-s.start(ctx, replica, stock.Request{GoodsID: b, Count: 1})).Err
		})
		if s.takesOrders() {
			s.wantBusyAtOnce(t, "an order", func() error {
				return s.order(ctx, replica, stock.Line{GoodsID: a, Count: 1}, stock.Line{GoodsID: b, Count: 1})
			})
		}
	}
	must.Succeed(t, holder.Resume())
	// Those that were refused left nothing behind.
	for replica := range replicas {
		if sold := <-s.start(ctx, replica, stock.Request{GoodsID: b, Count: 1}); sold.Err != nil {
			t.Errorf("a try after the holder, on replica %d: %v", replica, sold.Err)
		}
	}
	s.wantLeft(t, a, 4)
	s.wantLeft(t, b, int64(3-replicas))
}

// waitsBriefly sends a request that waits less than others while another one holds the lock.
func (s subject) waitsBriefly(t *testing.T) {
	id, ctx := s.newItem(t, 4), stock.LimitWait(patient(t), 20*time.Millisecond)
	holder := s.park(t, 0, stock.Request{GoodsID: id, Count: 1}, BeforeWrite)
	s.wantBusyAtOnce(t, "a deduction that may wait for 20 ms", func() error {
		return (<-s.start(ctx, 0, stock.Request{GoodsID: id, Count: 1})).Err
	})
	must.Succeed(t, holder.Resume())
	s.wantLeft(t, id, 3)
}

// wantBusyAtOnce expects a refusal long before the usual limit of a wait has passed.
func (s subject) wantBusyAtOnce(t *testing.T, what string, send func() error) {
	t.Helper()
	began, usual := time.Now(), s.replicas[0].service.deps.LockWait
	err := send()
	if took := time.Since(began); !errors.Is(err, stock.ErrBusy) || errors.Is(err, context.DeadlineExceeded) ||
		took > usual/2 {
		t.Errorf("%s while the lock is held: %v after %v, want busy at once", what, err, took)
	}
}
