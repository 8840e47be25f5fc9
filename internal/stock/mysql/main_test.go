package mysql_test

import (
	"os"
	"testing"

	"stock/internal/stock"
	"stock/internal/stock/stocktest"
)

func TestMain(m *testing.M) { os.Exit(stocktest.Main(m)) }

// newReplica makes connections and a service with a database that no other test uses.
func newReplica(t testing.TB) (stock.Deps, *stocktest.Service) {
	t.Helper()
	deps := stocktest.NewAddresses(t, stock.NeedMySQL).Connect(t)
	return deps, stocktest.NewService(t, deps)
}

// eachKeyed runs a test for strategies that record keys in different ways: in a statement, for a batch, and in a
// transaction.
func eachKeyed(t *testing.T, test func(t *testing.T, name string)) {
	t.Parallel()
	for _, name := range []string{"update", "batch", "for-update"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, name)
		})
	}
}
