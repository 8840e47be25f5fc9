package catalogue_test

import (
	"errors"
	"slices"
	"testing"

	"stock/internal/must"
	"stock/internal/servers/serverstest"
	"stock/internal/stock"
	"stock/internal/stock/stocktest"
)

func TestTheseStrategiesTakeOrders(t *testing.T) {
	t.Parallel()
	takesOrders := []string{"update", "for-update", "batch", "lock-redis-fenced"}
	service := stocktest.NewService(t, stocktest.NewAddresses(t).Connect(t))
	for _, status := range service.Statuses() {
		var want []stock.Store
		if slices.Contains(takesOrders, status.Name) {
			want = []stock.Store{stock.MySQL}
		}
		if !slices.Equal(status.Orders, want) {
			t.Errorf("%s takes orders on %v, want %v", status.Name, status.Orders, want)
		}
		for _, on := range status.Stores {
			_, _, err := service.ResolveOrders(status.Name, on)
			if (err == nil) != slices.Contains(want, on) || err != nil && !errors.Is(err, stock.ErrNoOrders) {
				t.Errorf("ResolveOrders(%q, %q): %v, want orders on %v", status.Name, on, err, want)
			}
		}
	}
}

// A lock wait that times out rolls back its statement only. The transaction, with what was deducted before, stays open.
func TestALockWaitTimeoutLeavesNoHalfOrder(t *testing.T) {
	serverstest.Long(t)
	t.Parallel()
	a := stocktest.NewAddresses(t, stock.NeedMySQL, stock.NeedRedis)
	o := stocktest.NewOrders(t, a, 10, 10)
	impatient := o.OnReplica(a.WithMySQLParam(t, "innodb_lock_wait_timeout", "1"))
	impatient.Deps.MySQL.SetMaxOpenConns(1) // the next order uses the same connection
	unlock := stocktest.LockRow(t, o.Deps.MySQL, o.Items[1])
	for _, name := range []string{"update", "for-update", "lock-redis-fenced"} {
		_, err := impatient.Place(name, stock.MySQL, nil, 1, 1)
		line, isLine := errors.AsType[*stock.LineError](err)
		if !isLine || line.GoodsID != o.Items[1] || !errors.Is(err, stock.ErrBusy) {
			t.Errorf("%s: %v, want that item %d is busy", name, err, o.Items[1])
		}
	}
	unlock()
	_, err := impatient.Place("update", stock.MySQL, nil, 1, 1)
	must.Succeed(t, err)
	o.WantLeft(stock.MySQL, 9, 9)
}
