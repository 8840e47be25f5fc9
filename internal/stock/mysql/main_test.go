package mysql_test

import (
	"os"
	"testing"

	"stock/internal/stock"
	"stock/internal/stock/catalogue"
	"stock/internal/stock/stocktest"
)

func TestMain(m *testing.M) { os.Exit(stocktest.Main(m)) }

// newReplica makes connections and a service with a database that no other test uses.
func newReplica(t testing.TB) (stock.Deps, *stocktest.Service) {
	t.Helper()
	deps := stocktest.NewAddresses(t, stock.NeedMySQL).Connect(t)
	return deps, stocktest.NewService(t, deps)
}

// eachIdempotent runs a test for every strategy that supports keys, except for controls.
func eachIdempotent(t *testing.T, test func(t *testing.T, name string)) {
	t.Parallel()
	for _, strategy := range catalogue.Strategies {
		if strategy.Idempotent && !strategy.Control {
			t.Run(strategy.Name, func(t *testing.T) {
				t.Parallel()
				test(t, strategy.Name)
			})
		}
	}
}
