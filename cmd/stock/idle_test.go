package main

import (
	"bytes"
	"net/http"
	"syscall"
	"testing"
	"time"

	"stock/internal/must"
	"stock/internal/servers/serverstest"
	"stock/internal/tcpproxy"
)

// A stopped replica is like a host that has vanished: its connections stay open.
func TestMySQLFreesWhatAStoppedReplicaHasLocked(t *testing.T) {
	serverstest.Long(t)
	t.Parallel()
	reads := 0
	readingAgain := func(m tcpproxy.Message) bool { // the first time, it has no lock yet
		if bytes.Contains(m.Data, []byte("SELECT stock FROM good_stock")) {
			reads++
		}
		return reads == 2
	}
	for strategy, match := range map[string]func(tcpproxy.Message) bool{
		"for-update": writing, "lock-mysql-getlock": readingAgain,
	} {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			env := migrated(t)
			flags := []string{"serve", "--lock-wait=1s", "--request-timeout=3s", "--mysql-idle-timeout=5s"}
			proxy, proxied := behindProxy(t, env)
			victim, survivor := launch(t, proxied, flags...), launch(t, env, flags...)
			parked, release := park(t, victim, proxy, strategy, match)
			victim.signal(t, syscall.SIGSTOP)
			buy := survivor.url + "/stock/deduct/" + strategy + "?goods_id=1&count=2"
			if status, body := survivor.call(http.MethodPost, buy); status != http.StatusServiceUnavailable {
				t.Errorf("while the item is locked, a buyer gets %d %v, want busy", status, body)
			}
			var last map[string]any
			eventually(t, "the item is sold again", func() bool {
				status, body := survivor.call(http.MethodPost, buy)
				last = body
				return status == http.StatusOK
			})
			release()
			victim.signal(t, syscall.SIGCONT)
			if late := <-parked; late.status == http.StatusOK {
				t.Errorf("the stopped replica sold after its lock was gone: %v", late.body)
			}
			left := survivor.expect(t, http.MethodGet, survivor.url+"/stock/1", http.StatusOK)
			if last["remaining"] != 5998.0 || left["stock"] != 5998.0 {
				t.Errorf("%v remained after the sale and %v are left, want 5998", last["remaining"], left["stock"])
			}
		})
	}
}

// If MySQL closed an idle connection first, a request that was sent at that moment would have an unknown outcome.
func TestThePoolClosesIdleConnectionsBeforeMySQLDoes(t *testing.T) {
	serverstest.Long(t)
	t.Parallel()
	env := migrated(t)
	options := storeOptions{mysqlDSN: env["STOCK_MYSQL_DSN"], mysqlIdle: 6 * time.Second}
	config, err := options.mysqlConfig()
	must.Succeed(t, err)
	limitWaits(config, time.Second, 3*time.Second)
	options.limitIdle(config, 3*time.Second)
	db, err := openMySQL(config, 2)
	must.Succeed(t, err)
	defer db.Close()
	var ends int
	if err := db.Get(&ends, "SELECT @@wait_timeout"); err != nil || ends != 6 {
		t.Fatalf("MySQL ends the session after %d s, %v, want 6", ends, err)
	}
	eventually(t, "the pool has closed the connection", func() bool { return db.Stats().OpenConnections == 0 })
	if closed := db.Stats().MaxIdleTimeClosed; closed != 1 {
		t.Errorf("the pool closed %d idle connections, want 1", closed)
	}
}
