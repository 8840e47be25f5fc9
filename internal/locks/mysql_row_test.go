package locks_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"stock/internal/tcpproxy"
)

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
