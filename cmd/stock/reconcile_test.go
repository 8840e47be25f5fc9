package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"stock/internal/servers"
	"stock/internal/servers/serverstest"
)

// streamed is the environment of a service that can sell by redis-stream, with 6000 units of goods 1 in both stores.
func streamed(t *testing.T, options servers.RedisOptions) (environment, *redis.Client) {
	t.Helper()
	server := serverstest.StartRedis(t, options)
	env := environment{"STOCK_MYSQL_DSN": shared.Database(t), "STOCK_REDIS": server.Addr}
	if _, err := command(t, env, "migrate"); err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	t.Cleanup(func() { client.Close() })
	return env, client
}

func TestReconcileTellsMendsAndExitsAccordingly(t *testing.T) {
	t.Parallel()
	env, client := streamed(t, servers.RedisOptions{})
	reconcile := func(wantExit int, want string, args ...string) {
		t.Helper()
		out, err := command(t, env, append([]string{"reconcile"}, args...)...)
		if exitCode(err) != wantExit || !strings.Contains(out, want) {
			t.Errorf("reconcile %v: %v, and printed\n%s\nwant exit status %d and %q", args, err, out, wantExit, want)
		}
	}
	reconcile(0, "1      6000   6000   0             agree")
	if err := client.Set(t.Context(), "stock:{1}", 6010, 0).Err(); err != nil {
		t.Fatal(err)
	}
	reconcile(1, "Redis has too many: by 10; --mend would mend it", "--goods=1")
	reconcile(0, "Redis has too many: by 10; mended: 6000", "--mend")
	reconcile(0, "agree")
	if err := client.Set(t.Context(), "stock:{1}", 5990, 0).Err(); err != nil {
		t.Fatal(err)
	}
	reconcile(1, "Redis has too few: by 10; cannot be mended, see --help", "--mend")
	if err := client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	reconcile(0, "1      -      6000   0             Redis has none; mended: 6000", "--mend")
	reconcile(1, "", "--goods=404")
	delete(env, "STOCK_REDIS")
	reconcile(2, "")
}

// backlog is what /metrics says of the sales that are not in MySQL yet.
func (p *program) backlog(t *testing.T) (sales string) {
	t.Helper()
	response, err := http.Get(p.admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), "stock_stream_backlog_sales "); ok {
			sales = value
		}
	}
	return sales
}

// A replica is killed under load: what it has sold and not written, the other one writes.
func TestAReplicaThatIsKilledLosesNoSaleOfRedisStream(t *testing.T) {
	t.Parallel()
	env, _ := streamed(t, servers.RedisOptions{AOF: true, Fsync: "always"})
	doomed := launch(t, env, "serve", "--lease=500ms", "--replica=doomed")
	other := launch(t, env, "serve", "--lease=500ms", "--replica=other")
	var confirmed, unknown atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var wg sync.WaitGroup
	for buyer := range 8 {
		p := []*program{doomed, other}[buyer%2]
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				count := 1 + i%3
				status, _ := p.call("POST", fmt.Sprintf("%s/stock/deduct/redis-stream?goods_id=1&count=%d", p.url, count))
				switch status {
				case 200:
					confirmed.Add(int64(count))
				case 0: // killed before it replied, or before the next request
					unknown.Add(int64(count))
					return
				default:
					t.Errorf("status %d", status)
					return
				}
			}
		})
	}
	eventually(t, "units are sold", func() bool { return confirmed.Load() > 200 })
	if err := doomed.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	sold := confirmed.Load()
	eventually(t, "the other one sells on", func() bool { return confirmed.Load() > sold+100 })
	stop()
	wg.Wait()
	eventually(t, "every sale is in MySQL", func() bool { return other.backlog(t) == "0" })
	left := other.expect(t, "GET", other.url+"/stock/1", 200)["stock"].(float64)
	if durable := 6000 - int64(left); durable < confirmed.Load() || durable > confirmed.Load()+unknown.Load() {
		t.Errorf("%d units were confirmed, %d are unknown, and MySQL has deducted %d", confirmed.Load(), unknown.Load(), durable)
	}
	if out, err := command(t, env, "reconcile"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
