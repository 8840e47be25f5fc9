package stream_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"stock/internal/must"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
	"stock/internal/stock"
	"stock/internal/stock/stocktest"
	"stock/internal/stock/stream"
)

// abundance is more units than a test can sell, however slow the machine is.
const abundance = 1 << 40

// buyers buy units of item 1 until they are stopped.
type buyers struct {
	replica            replica
	confirmed, unknown atomic.Int64 // units, by outcome
	stop               func()
}

func startBuyers(t testing.TB, r replica) *buyers {
	b := &buyers{replica: r}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				count := 1 + i%3
				_, err := r.Deduct(context.WithoutCancel(ctx), stock.Request{GoodsID: 1, Count: count})
				switch {
				case err == nil:
					b.confirmed.Add(int64(count))
				case errors.Is(err, stock.ErrUnknown):
					b.unknown.Add(int64(count))
				default:
					time.Sleep(time.Millisecond) // a server is down
				}
			}
		})
	}
	b.stop = func() { cancel(); wg.Wait() }
	t.Cleanup(b.stop)
	return b
}

// waitForSales waits until this many more units are confirmed.
func (b *buyers) waitForSales(t testing.TB, units int64) {
	t.Helper()
	from := b.confirmed.Load()
	serverstest.Eventually(t, "units are sold", func() bool { return b.confirmed.Load() >= from+units })
}

// wantStock checks that MySQL has deducted and recorded every confirmed unit, and at most those of unknown outcome
// besides, and that both stores agree.
func (b *buyers) wantStock(t testing.TB, initial int64) {
	t.Helper()
	stocktest.Drain(t, b.replica.service)
	balance := b.replica.reconcile(t, false)
	if balance.Finding != stream.Agree || balance.Pending != 0 {
		t.Errorf("Reconcile: %+v, want agreement", balance)
	}
	confirmed, unknown, deducted := b.confirmed.Load(), b.unknown.Load(), initial-balance.MySQL
	recorded := b.replica.recorded(t, 1)
	if deducted < confirmed || deducted > confirmed+unknown || deducted != recorded {
		t.Errorf("%d units were confirmed, the outcome of %d is unknown; MySQL has deducted %d and recorded %d",
			confirmed, unknown, deducted, recorded)
	}
}

// newMySQL starts a durable MySQL server, which a test may kill.
func newMySQL(t *testing.T) (*servers.MySQL, stocktest.Addresses) {
	t.Helper()
	server, dsn := serverstest.StartDatabase(t, servers.MySQLOptions{})
	stocktest.Migrate(t, dsn)
	return server, stocktest.Addresses{MySQL: dsn, Redis: stocktest.Servers.Redis(t)}
}

func TestAnOutageOfMySQLOnlyDelaysTheWriteBehind(t *testing.T) {
	t.Parallel()
	server, a := newMySQL(t)
	deps := connect(t, a)
	log := new(stocktest.Log)
	deps.Log = slog.New(slog.NewTextHandler(log, nil))
	r := newReplica(t, deps, 200*time.Millisecond)
	r.set(t, 1, 100)
	server.Kill()
	for range 5 {
		r.sell(t, 1, 2)
	}
	serverstest.Eventually(t, "the outage is logged", func() bool { return log.Count("cannot write the sales") == 1 })
	if backlog, err := r.service.Backlog(t.Context()); err != nil || backlog.Entries != 5 || backlog.Age <= 0 {
		t.Errorf("the backlog is %+v, %v, want 5 sales of some age", backlog, err)
	}
	must.Succeed(t, server.Restart(t.Context()))
	r.wantStock(t, 1, 90, 90)
	serverstest.Eventually(t, "the end of the outage is logged", func() bool { return log.Count("works again") == 1 })
	if began := log.Count("level=WARN"); began != 1 {
		t.Errorf("the log has %d warnings, want 1", began)
	}
}

// A backlog of 0 would say that every sale is in MySQL.
func TestTheBacklogIsUnknownWhileRedisDoesNotAnswer(t *testing.T) {
	t.Parallel()
	a, server := newServers(t)
	r := newReplica(t, connect(t, a), 200*time.Millisecond)
	r.set(t, 1, 100)
	server.Kill()
	if backlog, err := r.service.Backlog(t.Context()); !errors.Is(err, stock.ErrUnavailable) {
		t.Errorf("the backlog is %+v, %v, want ErrUnavailable", backlog, err)
	}
}

func TestACrashOfMySQLLosesNoSaleOfRedisStream(t *testing.T) {
	t.Parallel()
	server, a := newMySQL(t)
	r := newReplica(t, connect(t, a), 200*time.Millisecond)
	r.set(t, 1, abundance)
	buyers := startBuyers(t, r)
	buyers.waitForSales(t, 300)
	server.Kill()
	buyers.waitForSales(t, 300) // selling continues
	must.Succeed(t, server.Restart(t.Context()))
	buyers.waitForSales(t, 300)
	buyers.stop()
	buyers.wantStock(t, abundance)
}
