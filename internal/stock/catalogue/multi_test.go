package catalogue_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"stock/internal/stock"
)

// A move from one lock to the other is safe while some replicas use one of them and others both.
func TestLockMultiAndTheLocksItStandsForExcludeEachOther(t *testing.T) {
	t.Parallel()
	for _, single := range []string{"lock-redis-watchdog", "lock-mysql-getlock"} {
		for _, pair := range [][2]string{{single, "lock-multi"}, {"lock-multi", single}} {
			t.Run(pair[0]+" keeps out "+pair[1], func(t *testing.T) {
				t.Parallel()
				d := newDuel(t, pair[0], pair[1], stock.MySQL)
				holder := park(t, d.first, d.request(1), stock.BeforeWrite)
				ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
				defer cancel()
				if _, err := d.second.Deduct(ctx, d.request(2)); !errors.Is(err, stock.ErrBusy) {
					t.Errorf("beside a holder: %v, want busy", err)
				}
				if err := holder.goOn(); err != nil {
					t.Errorf("the holder: %v", err)
				}
				sell(t, d.second, d.request(2))
				d.wantLeft(t, initial-3)
			})
		}
	}
}
