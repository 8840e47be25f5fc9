package mysql_test

import (
	"slices"
	"testing"
	"time"

	"stock/internal/must"
	"stock/internal/stock"
	"stock/internal/stock/retention"
	"stock/internal/stock/stocktest"
)

// newOrders makes a replica and its items, in a database that no other test uses.
func newOrders(t testing.TB, units ...int64) *stocktest.Orders {
	t.Helper()
	return stocktest.NewOrders(t, stocktest.NewAddresses(t, stock.NeedMySQL), units...)
}

// wantRows checks the units of each of the key's rows in the ledger.
func wantRows(t testing.TB, o *stocktest.Orders, key string, want ...int) {
	t.Helper()
	var got []int
	err := o.Deps.MySQL.Select(&got, "SELECT count FROM ledger WHERE order_key = ? ORDER BY line", []byte(key))
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("key %q has rows of %v units, %v, want %v", key, got, err, want)
	}
}

// The rows of an order are deleted together, although the row of a line is a moment younger than that of the key.
func TestPruneLedgerDeletesAnOrderWithAllOfItsLines(t *testing.T) {
	t.Parallel()
	o := newOrders(t, 10, 10)
	for i, key := range []string{"old", "young"} {
		_, err := o.Send("update", stock.MySQL, o.Request(key, 3, 4))
		must.Succeed(t, err)
		_, err = o.Deps.MySQL.Exec(`UPDATE ledger SET created_at = created_at - INTERVAL 2 HOUR
			WHERE order_key = ? AND line = ?`, []byte(key), i)
		must.Succeed(t, err)
	}
	deleted, err := retention.PruneLedger(t.Context(), o.Deps.MySQL, time.Hour)
	if err != nil || deleted != 2 {
		t.Errorf("%d rows were deleted, %v, want 2", deleted, err)
	}
	wantRows(t, o, "old")
	wantRows(t, o, "young", 3, 4)
}
