package health_test

import (
	"os"
	"sync"
	"testing"
	"time"

	"stock/internal/must"
	"stock/internal/stock"
	"stock/internal/stock/health"
	"stock/internal/stock/stocktest"
	"stock/internal/tcpproxy"
)

func TestMain(m *testing.M) { os.Exit(stocktest.Main(m)) }

// newChecker makes a Checker of a MySQL server behind a proxy, which counts the connections that were used.
func newChecker(t *testing.T) (*health.Checker, *tcpproxy.Proxy) {
	t.Helper()
	a := stocktest.NewAddresses(t, stock.NeedMySQL)
	proxy, dsn := stocktest.ProxyMySQL(t, a.MySQL)
	last := 0
	proxy.Select(func(m tcpproxy.Message) bool {
		first := m.Conn > last
		last = max(last, m.Conn)
		return first
	})
	a.MySQL = dsn
	return health.New(a.Connect(t)), proxy
}

func TestOneClientThatAsksAgainAndAgainIsNoLoadForMySQL(t *testing.T) {
	t.Parallel()
	checker, proxy := newChecker(t)
	start := time.Now()
	for range 100 {
		must.Succeed(t, checker.Check()[stock.NeedMySQL])
	}
	most := 1 + int(time.Since(start)/health.MaxAge)
	if n := proxy.Count(); n < 1 || n > most {
		t.Errorf("100 checks opened %d connections, want 1 to %d", n, most)
	}
}

func TestCallersShareTheCheckUnderWay(t *testing.T) {
	t.Parallel()
	checker, proxy := newChecker(t)
	release := proxy.Hold() // MySQL is silent, so a check takes as long as it may
	defer release()
	start := time.Now()
	var callers sync.WaitGroup
	for range 10 {
		callers.Go(func() {
			if checker.Check()[stock.NeedMySQL] == nil {
				t.Error("MySQL is silent and counts as up")
			}
		})
	}
	callers.Wait()
	most := int((time.Since(start) + health.MaxAge) / (health.Limit + health.MaxAge))
	if n := proxy.Count(); n < 1 || n > most {
		t.Errorf("10 callers made %d checks, want 1 to %d", n, most)
	}
}
