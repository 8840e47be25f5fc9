package locks_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"stock/internal/locks"
)

func TestTakeBackLaterRetriesUntilTheServiceAnswers(t *testing.T) {
	t.Parallel()
	tries := make(chan int)
	n := 0
	locks.TakeBackLater(t.Context(), time.Minute, func(context.Context) error {
		n++
		tries <- n
		if n < 3 {
			return errors.New("no answer")
		}
		close(tries)
		return nil
	})
	for want := 1; want <= 3; want++ {
		select {
		case <-tries:
		case <-time.After(patience):
			t.Fatalf("no attempt %d", want)
		}
	}
	if n, more := <-tries; more {
		t.Errorf("attempt %d after the service had answered", n)
	}
}
