package fault

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"stock/loadtest/internal/history"
	"stock/loadtest/internal/report"
)

func TestNobodyAsksAfterTheContextHasEnded(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	asked := 0
	err := new(Stage).play(ctx, func(s *Stage) {
		s.untilSold("B", time.Now(), patience, func(string) history.Op {
			asked++
			cancel()
			return history.Op{Outcome: history.Unknown}
		})
	})
	if !errors.Is(err, context.Canceled) || asked != 1 {
		t.Errorf("asked %d times, %v, want once, and %v", asked, err, context.Canceled)
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
