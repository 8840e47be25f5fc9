package locks_test

import (
	"testing"
	"time"

	"stock/internal/locks"
)

func TestMySQLRowLosesItsLeaseDuringWork(t *testing.T) {
	t.Parallel()
	d := sharedMySQLRow(t)
	brief := d.New(t, d.Addresses(), locks.Options{Lease: 300 * time.Millisecond})
	next := d.New(t, d.Addresses(), locks.Options{Lease: time.Minute, Poll: time.Millisecond})
	const key = "lock:{late}"

	late := mustLock(t, brief, key)
	second := mustLock(t, next, key) // takes the row over when the lease has ended
	awaitLoss(t, late)
	wantLeaseLost(t, late.Unlock())
	if !d.Held(t, key) {
		t.Error("the late holder's Unlock deleted the row of the next holder")
	}
	mustUnlock(t, second)
}
