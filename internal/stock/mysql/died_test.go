package mysql_test

import (
	"testing"
	"time"

	"github.com/jmoiron/sqlx"

	"stock/internal/must"
	"stock/internal/stock"
	"stock/internal/stock/stocktest"
	"stock/internal/tcpproxy"
)

// dyingReplica is a replica that dies while a message of several statements waits for a row.
type dyingReplica struct {
	db      *sqlx.DB // of the test
	proxy   *tcpproxy.Proxy
	service *stocktest.Service
	item    int64
}

func newDyingReplica(t *testing.T) dyingReplica {
	a := stocktest.NewAddresses(t, stock.NeedMySQL)
	r := dyingReplica{db: stocktest.MySQL(t, a.MySQL)}
	r.proxy, a.MySQL = stocktest.ProxyMySQL(t, a.MySQL)
	r.service = stocktest.NewService(t, a.Connect(t))
	r.item = r.service.NewItem(t, 10)
	return r
}

// dies has the replica die while a request waits for the row that lock selects. It returns when the server has ended
// what the request sent.
func (r dyingReplica) dies(t *testing.T, lock string, wait time.Duration, request func() error) {
	t.Helper()
	locked := stocktest.Begin(t, r.db)
	_, err := locked.Exec(lock, r.item)
	must.Succeed(t, err)
	done := make(chan error, 1)
	go func() { done <- request() }()
	stocktest.WaitForRowLock(t, r.db)
	r.proxy.Break()
	if err := <-done; err == nil {
		t.Error("the request was answered")
	}
	time.Sleep(wait)
	must.Succeed(t, locked.Rollback())
	after := stocktest.Begin(t, r.db)
	_, err = after.Exec(lock, r.item)
	must.Succeed(t, err)
	must.Succeed(t, after.Rollback())
}

// wantAll checks that ten units are left or held.
func (r dyingReplica) wantAll(t *testing.T, query string) {
	t.Helper()
	var units int64
	if err := r.db.Get(&units, query, r.item, r.item); err != nil || units != 10 {
		t.Errorf("%d units are left or held, %v; want 10", units, err)
	}
}

// The server goes on with a message whose sender has died. The reservation of the second replica waits so long that too
// little of its time would be left.
func TestAReplicaThatDiesWhileItsHoldWaitsLeavesNoReservationWithoutUnits(t *testing.T) {
	t.Parallel()
	for name, wait := range map[string]time.Duration{"at once": 0, "late": 200 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newDyingReplica(t)
			reserve := reserver(t, r.service)
			r.dies(t, "SELECT stock FROM good_stock WHERE goods_id = ? FOR UPDATE", wait, func() error {
				request := stock.HoldRequest{Request: stock.Request{GoodsID: r.item, Count: 3}, TTL: time.Minute}
				_, _, err := reserve.Hold(t.Context(), request)
				return err
			})
			r.wantAll(t, "SELECT stock + (SELECT COALESCE(SUM(count), 0) FROM reservation WHERE goods_id = ?) "+
				"FROM good_stock WHERE goods_id = ?")
		})
	}
}

func TestAReplicaThatDiesWhileItMakesRowsOfUnitsLosesNone(t *testing.T) {
	t.Parallel()
	r := newDyingReplica(t)
	buy := r.service.Deducter(t, "units", stock.Units)
	r.dies(t, "SELECT unmade FROM unit_stock WHERE goods_id = ? FOR UPDATE", 0, func() error {
		_, err := buy.Deduct(t.Context(), stock.Request{GoodsID: r.item, Count: 1})
		return err
	})
	r.wantAll(t, "SELECT unmade + (SELECT COUNT(*) FROM good_unit WHERE goods_id = ?) FROM unit_stock WHERE goods_id = ?")
}
