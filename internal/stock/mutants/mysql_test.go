package mutants

import (
	"context"
	"database/sql/driver"
	"errors"
	"slices"
	"testing"
	"time"
)

// sentUnits sends an UPDATE that deducts from item 1, and returns the units that it deducts on the way to MySQL.
func sentUnits(
	ctx context.Context, t *testing.T, p *plan, count int64, reply func() (driver.Result, error),
) (units int64) {
	t.Helper()
	send := func(_ context.Context, _ string, args []driver.NamedValue) (driver.Result, error) {
		units = args[0].Value.(int64)
		return reply()
	}
	args := []driver.NamedValue{{Value: count}, {Value: int64(1)}, {Value: count}}
	_, _ = p.execute(&statement{ctx, deducts, args, send})
	return units
}

func oneRow() (driver.Result, error) { return driver.RowsAffected(1), nil }

// atTheStrike returns a plan that leaves out the next deduction.
func atTheStrike(t *testing.T) (p *plan, deduction context.Context) {
	t.Helper()
	p, deduction = &plan{}, marked(t.Context())
	takeFromTheNext(p)
	for range 49 {
		if got := sentUnits(deduction, t, p, 2, oneRow); got != 2 {
			t.Fatalf("%d units are deducted, want the 2 that were asked for", got)
		}
	}
	return p, deduction
}

func TestWhatADeductionLeavesOutTheNextOneTakes(t *testing.T) {
	t.Parallel()
	p, deduction := atTheStrike(t)
	replies := []func() (driver.Result, error){
		oneRow,
		func() (driver.Result, error) { return driver.RowsAffected(0), nil }, // too few units
		func() (driver.Result, error) { return nil, errors.New("failed") },
		oneRow,
		oneRow,
	}
	var got []int64
	for _, reply := range replies {
		got = append(got, sentUnits(deduction, t, p, 3, reply))
	}
	if want := []int64{0, 6, 6, 6, 3}; !slices.Equal(got, want) {
		t.Errorf("the UPDATEs deduct %d units, want %d", got, want)
	}
	wantStrikes(t, p, 1)
}

func TestOrdersAreNeitherLeftOutNorTakeForOthers(t *testing.T) {
	t.Parallel()
	p, deduction := atTheStrike(t)
	for strikes := range int64(2) {
		if got := sentUnits(t.Context(), t, p, 4, oneRow); got != 4 {
			t.Errorf("an order deducts %d units, want 4", got)
		}
		wantStrikes(t, p, strikes)
		sentUnits(deduction, t, p, 1, oneRow)
	}
}

// An order that has locked the row must not wait for a deduction that waits for the row.
func TestNoUpdateWaitsForAnotherOneOfTheSameReplica(t *testing.T) {
	t.Parallel()
	p, deduction := atTheStrike(t)
	sentUnits(deduction, t, p, 1, func() (driver.Result, error) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			sentUnits(deduction, t, p, 1, oneRow)
		}()
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			t.Error("an UPDATE waits until another one has its reply")
		}
		return oneRow()
	})
}
