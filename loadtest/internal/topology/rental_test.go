package topology

import (
	"bytes"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"stock/internal/must"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
	"stock/internal/tcpproxy"
	"stock/loadtest/internal/oracle"
	"stock/loadtest/internal/tenant"
)

func TestASlowDropDoesNotDelayTheRemovalOfKeys(t *testing.T) {
	t.Parallel()
	db := serverstest.StartMySQL(t, servers.MySQLOptions{Relaxed: true})
	store := serverstest.StartRedis(t, servers.RedisOptions{})
	proxy := tcpproxy.New(t, db.Addr)
	dsn := strings.Replace(db.DSN(""), db.Addr, proxy.Addr(), 1)
	var rented Topology
	var err error
	if rented.Tenants.MySQL, err = tenant.CreateDatabase(t.Context(), dsn, oracle.Account{}, "stock_lab"); err != nil {
		t.Fatal(err)
	}
	rented.Tenants.Redis, err = tenant.CreateKeys(t.Context(), []string{store.Addr}, oracle.Account{}, "stock_lab:")
	must.Succeed(t, err)
	proxy.Select(func(m tcpproxy.Message) bool { return bytes.Contains(m.Data, []byte("DROP DATABASE")) })
	release := proxy.Hold()
	removed := make(chan error, 1)
	go func() { removed <- rented.removeTenants(t.Context()) }()
	client := serverstest.RedisClient(t, &redis.Options{Addr: store.Addr})
	serverstest.Eventually(t, "the keys are gone, and the database is to be dropped", func() bool {
		return client.DBSize(t.Context()).Val() == 0 && proxy.Count() > 0
	})
	select {
	case err := <-removed:
		t.Errorf("the database cannot have been dropped, and its removal ended with %v", err)
	default:
	}
	release()
	if err := <-removed; err != nil {
		t.Error(err)
	}
}
