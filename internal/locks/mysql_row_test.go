package locks_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"stock/internal/locks"
	"stock/internal/tcpproxy"
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

// The server carries out a statement that is on its way even if its client hangs up.
func TestMySQLRowAwaitsTheReplyAfterItsCallerGaveUp(t *testing.T) {
	t.Parallel()
	d := sharedMySQLRow(t)
	const key = "lock:{given up}"
	proxy := tcpproxy.New(t, d.Addresses()...)
	insert := proxy.Catch(func(m tcpproxy.Message) bool { return bytes.Contains(m.Data, []byte(key)) })
	ctx, giveUp := context.WithCancel(t.Context())
	granted, failed := startLock(ctx, d.New(t, proxy.Addresses(), lasting), key)
	<-insert.Arrived()
	giveUp()
	select {
	case err := <-failed:
		t.Errorf("Lock failed while its statement was on its way: %v", err)
	case <-time.After(inVain):
	}
	insert.Release()
	mustUnlock(t, receive(t, granted, failed))
	if d.Held(t, key) {
		t.Error("a lock that its caller gave up is held")
	}
}
