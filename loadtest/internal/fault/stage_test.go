package fault

import (
	"testing"
	"testing/synctest"
	"time"

	"stock/loadtest/internal/report"
)

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
