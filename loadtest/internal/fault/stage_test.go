package fault

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"stock/loadtest/internal/report"
)

func TestNobodyAsksAfterTheContextHasEnded(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	var asked atomic.Int64
	service := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked.Add(1)
		cancel()
	}))
	t.Cleanup(service.Close)
	err := (&Stage{player: &Player{}, note: func(report.FaultStep) {}}).play(ctx, func(s *Stage) {
		s.tryToBuy(order{client: "B", through: service.URL}, time.Now(), patience)
	})
	if !errors.Is(err, context.Canceled) || asked.Load() != 1 {
		t.Errorf("asked %d times, %v, want once, and %v", asked.Load(), err, context.Canceled)
	}
}

func TestTheTimeThatSomebodyReadsIsNotCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s := &Stage{note: func(report.FaultStep) { time.Sleep(time.Minute) }}
		s.Stepf("before")
		since := time.Now()
		time.Sleep(time.Second)
		s.Stepf("in between")
		until := time.Now()
		if waited := s.between(since, until); waited != time.Second {
			t.Errorf("waited %v, want the second in which nobody read", waited)
		}
		if waited := s.between(began, began.Add(30*time.Second)); waited != 0 {
			t.Errorf("waited %v while somebody read", waited)
		}
	})
}
