package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"stock/internal/must"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
	"stock/internal/stock"
)

// streamed returns the environment of a service with redis-stream and 6000 units of item 1 in both stores.
func streamed(t *testing.T, options servers.RedisOptions) (environment, *redis.Client) {
	t.Helper()
	server := serverstest.StartRedis(t, options)
	env := environment{"STOCK_MYSQL_DSN": shared.Database(t), "STOCK_REDIS": server.Addr}
	mustMigrate(t, env)
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	t.Cleanup(func() { client.Close() })
	return env, client
}

func TestReconcileReportsAndMends(t *testing.T) {
	t.Parallel()
	env, client := streamed(t, servers.RedisOptions{})
	reconcile := func(wantExit int, want string, args ...string) {
		t.Helper()
		out, err := command(t, env, append([]string{"reconcile"}, args...)...)
		if exitCode(err) != wantExit || !strings.Contains(out, want) {
			t.Errorf("reconcile %v: %v, and printed\n%s\nwant exit status %d and %q", args, err, out, wantExit, want)
		}
	}
	reconcile(0, "1      6000   6000   0        agree")
	must.Succeed(t, client.Set(t.Context(), "stock:{1}", 6010, 0).Err())
	reconcile(1, "Redis has too many: by 10; --mend would mend it", "--goods=1")
	reconcile(0, "Redis has too many: by 10; mended: Redis now has 6000", "--mend")
	reconcile(0, "agree")
	must.Succeed(t, client.Set(t.Context(), "stock:{1}", 5990, 0).Err())
	reconcile(1, "Redis has too few: by 10; cannot be mended, see --help", "--mend")
	must.Succeed(t, client.FlushAll(t.Context()).Err())
	reconcile(0, "1      -      6000   0        Redis has none; mended: Redis now has 6000", "--mend")
	reconcile(3, "item 404 is not in MySQL or Redis", "--goods=404")
	must.Succeed(t, client.Set(t.Context(), "stock:{1}", 6010, 0).Err())
	reconcile(1, "item 404 is not in MySQL or Redis", "--goods=404,1") // item 1 differs all the same
	delete(env, "STOCK_REDIS")
	reconcile(2, "")
}

func TestReconcileTellsAServerThatDoesNotAnswerFromADifference(t *testing.T) {
	t.Parallel()
	env, _ := streamed(t, servers.RedisOptions{})
	dsn, address := env["STOCK_MYSQL_DSN"], env["STOCK_REDIS"]
	for server, unreachable := range map[string]environment{
		"Redis": {"STOCK_MYSQL_DSN": dsn, "STOCK_REDIS": serverstest.FreeAddress(t)},
		"MySQL": {"STOCK_MYSQL_DSN": "root@tcp(" + serverstest.FreeAddress(t) + ")/stock", "STOCK_REDIS": address},
	} {
		for _, args := range [][]string{{"reconcile"}, {"reconcile", "--goods=1"}} {
			if _, err := command(t, unreachable, args...); exitCode(err) != 3 {
				t.Errorf("%v without %s: %v, want exit status 3", args, server, err)
			}
		}
	}
}

// The item that does not exist and the one whose row is locked sort before the others.
func TestReconcileContinuesAfterAnItemThatCannotBeCompared(t *testing.T) {
	t.Parallel()
	env, client := streamed(t, servers.RedisOptions{})
	db := openDB(t, env)
	for id, units := range map[int]int{2: 20, 3: 30} {
		_, err := db.Exec("INSERT INTO good_stock (goods_id, stock) VALUES (?, ?)", id, units)
		must.Succeed(t, err)
	}
	must.Succeed(t, client.MSet(t.Context(), "stock:{2}", 20, "stock:{3}", 33).Err())
	must.Succeed(t, client.SAdd(t.Context(), "stock:streams", -1).Err())
	row, err := db.Begin()
	must.Succeed(t, err)
	defer row.Rollback()
	_, err = row.Exec("SELECT stock FROM good_stock WHERE goods_id = 1 FOR UPDATE")
	must.Succeed(t, err)
	out, err := command(t, env, "reconcile", "--mend")
	if exitCode(err) != 3 || !errors.Is(err, stock.ErrUnknownItem) ||
		!strings.Contains(err.Error(), "2 of 4 items could not be compared") {
		t.Errorf("reconcile: %v, want exit status 3 for the first that could not be compared", err)
	}
	for _, want := range []string{"could not be compared: ", "20     20     0        agree", "mended: Redis now has 30"} {
		if !strings.Contains(out, want) {
			t.Errorf("reconcile printed\n%s\nwant %q", out, want)
		}
	}
}

// backlog returns the metric of the sales that are not yet in MySQL.
func (p *program) backlog(t *testing.T) (sales string) {
	t.Helper()
	for line := range strings.Lines(p.read(t, "/metrics")) {
		if value, ok := strings.CutPrefix(line, "stock_stream_backlog_entries "); ok {
			sales = strings.TrimSpace(value)
		}
	}
	return sales
}
