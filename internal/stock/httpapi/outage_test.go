package httpapi_test

import (
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jmoiron/sqlx"
	"github.com/redis/go-redis/v9"

	"stock/internal/must"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
	"stock/internal/stock"
	"stock/internal/stock/stocktest"
)

// account is an ordinary account of MySQL: root is exempt from read_only.
type account struct {
	root *sqlx.DB
	deps stock.Deps
}

// newAccount makes an account that may use one database.
func newAccount(t *testing.T, dsn, name, limits string) *account {
	t.Helper()
	a := &account{root: migrated(t, stocktest.MySQL(t, dsn))}
	config, err := mysql.ParseDSN(dsn)
	must.Succeed(t, err)
	a.do(t, "CREATE USER '"+name+"'@'127.0.0.1' IDENTIFIED BY 'first' "+limits)
	a.do(t, "GRANT ALL ON "+config.DBName+".* TO '"+name+"'@'127.0.0.1'")
	config.User, config.Passwd = name, "first"
	a.deps = stock.Deps{MySQL: stocktest.MySQL(t, config.FormatDSN()), MySQLHealth: stocktest.MySQL(t, config.FormatDSN())}
	a.deps.MySQLHealth.SetMaxIdleConns(0)
	return a
}

func (a *account) do(t *testing.T, statement string) {
	t.Helper()
	_, err := a.root.Exec(statement)
	must.Succeed(t, err)
}

// wantReady waits until the replica is ready, or until the check of one server says that it is down: the result of a
// check is used for a while. Then the metrics must say the same.
func wantReady(t *testing.T, r *replica, need stock.Need, ready bool) {
	t.Helper()
	status, text, check, up := 200, `"ready"`, "up", "1"
	if !ready {
		status, text, check, up = 503, `"unready"`, "down", "0"
	}
	want := `"` + string(need) + `":{"status":"` + check + `"}`
	eventually(t, "readyz says "+want, func() bool {
		got := get(t, r.public+"/readyz")
		return got.status == status && got.text(t, "status") == text && strings.Contains(got.text(t, "checks"), want)
	})
	if got := metric(t, r, `stock_server_up{server="`+string(need)+`"}`); got != up {
		t.Errorf("the metrics say that %s is up: %q, want %s", need, got, up)
	}
}

func TestAReadOnlyMySQLIsUnavailableUntilItTakesWritesAgain(t *testing.T) {
	t.Parallel()
	_, dsn := serverstest.StartDatabase(t, servers.MySQLOptions{Relaxed: true})
	a := newAccount(t, dsn, "shop", "")
	r := newReplica(t, options{deps: a.deps})
	sell := func(status int, problem string) {
		t.Helper()
		for _, strategy := range []string{
			"update", "for-update", "optimistic-version", "serializable", "slots", "batch", "mutex",
		} {
			post(t, r.public+"/stock/deduct/"+strategy+"?goods_id=1&count=1", "").want(t, status, problem)
		}
	}
	sell(200, "")
	wantReady(t, r, stock.NeedMySQL, true)
	left := get(t, r.public+"/stock/1").text(t, "stock")

	sale := request{method: "POST", url: r.public + "/stock/deduct/for-update?goods_id=1&count=1"}
	committing := park(t, r, sale, stocktest.BeforeCommit)
	a.do(t, "SET GLOBAL read_only = 1")
	committing.resume().want(t, 503, "unavailable")

	sell(503, "unavailable")
	wantReady(t, r, stock.NeedMySQL, false)
	a.do(t, "SET GLOBAL read_only = 0")
	wantReady(t, r, stock.NeedMySQL, true)
	if now := get(t, r.public+"/stock/1").text(t, "stock"); now != left {
		t.Errorf("item 1 had %s units and has %s: a refused request deducted", left, now)
	}
	sell(200, "")
}

func TestAPasswordThatNoLongerWorksIsUnavailable(t *testing.T) {
	t.Parallel()
	a := newAccount(t, shared.Database(t), "changed", "")
	r := newReplica(t, options{deps: a.deps})
	const sale = "/stock/deduct/update?goods_id=1&count=1"
	post(t, r.public+sale, "").want(t, 200, "")
	a.do(t, "ALTER USER 'changed'@'127.0.0.1' IDENTIFIED BY 'second'")
	wantReady(t, r, stock.NeedMySQL, false) // although the open connections still work
	a.deps.MySQL.SetMaxIdleConns(-1)        // closes them
	post(t, r.public+sale, "").want(t, 503, "unavailable")
	a.do(t, "ALTER USER 'changed'@'127.0.0.1' IDENTIFIED BY 'first'")
	post(t, r.public+sale, "").want(t, 200, "")
	wantReady(t, r, stock.NeedMySQL, true)
}

// Taking a busy replica out of service would move its load to the others.
func TestReadyzStaysReadyWhileMySQLHasNoConnectionLeft(t *testing.T) {
	t.Parallel()
	a := newAccount(t, shared.Database(t), "limited", "WITH MAX_USER_CONNECTIONS 1")
	r := newReplica(t, options{deps: a.deps})
	post(t, r.public+"/stock/deduct/update?goods_id=1&count=1", "").want(t, 200, "") // keeps its connection
	got := get(t, r.public+"/readyz").want(t, 200, "")
	if got.text(t, "checks") != `{"mysql":{"status":"busy"}}` || got.text(t, "status") != `"ready"` {
		t.Errorf("readyz: %s", got.raw)
	}
	if got := get(t, r.admin+"/readyz").want(t, 200, ""); !strings.Contains(string(got.raw), `"reason":"`) {
		t.Errorf("/readyz of the admin listener has no reason: %s", got.raw)
	}
}

func TestARedisThatTakesNoWritesIsUnavailable(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ begin, end []any }{
		"a Redis replica": {[]any{"replicaof", "127.0.0.1", "1"}, []any{"replicaof", "no", "one"}},
		"out of memory":   {[]any{"config", "set", "maxmemory", "1"}, []any{"config", "set", "maxmemory", "0"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := serverstest.StartRedis(t, servers.RedisOptions{})
			client := serverstest.RedisClient(t, &redis.Options{Addr: server.Addr})
			r := newReplica(t, options{deps: stock.Deps{Redis: client}})
			do(t, request{method: "PUT", url: r.admin + "/admin/stock/1", body: `{"stock":10}`}).want(t, 200, "")
			sell := func(status int, problem string) {
				t.Helper()
				for _, strategy := range []string{"redis-script", "redis-watch"} {
					post(t, r.public+"/stock/deduct/"+strategy+"?goods_id=1&count=1", "").want(t, status, problem)
				}
				post(t, r.public+"/stock/deduct/lock-redis-queue?goods_id=1&count=1&store=redis", "").want(t, status, problem)
			}
			sell(200, "")
			wantReady(t, r, stock.NeedRedis, true)
			must.Succeed(t, client.Do(t.Context(), test.begin...).Err())
			sell(503, "unavailable")
			wantReady(t, r, stock.NeedRedis, false)
			must.Succeed(t, client.Do(t.Context(), test.end...).Err())
			wantReady(t, r, stock.NeedRedis, true)
			sell(200, "")
			for _, change := range []string{`"not ready: a server is down or takes no writes"`, `"ready again"`} {
				if n := r.log.Count(change); n != 1 {
					t.Errorf("the log has %q %d times, want once: %s", change, n, r.log)
				}
			}
		})
	}
}
