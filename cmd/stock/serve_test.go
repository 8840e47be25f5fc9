package main

import (
	"bufio"
	"database/sql"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/internal/must"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
	"stock/internal/stock/stocktest"
	"stock/internal/tcpproxy"
	"stock/nginx"
)

var redisOptions servers.RedisOptions

// mustMigrate migrates the database of an environment.
func mustMigrate(t *testing.T, env environment) {
	t.Helper()
	_, err := command(t, env, "migrate")
	must.Succeed(t, err)
}

// migrated returns the environment of a service with a migrated database.
func migrated(t *testing.T) environment {
	t.Helper()
	env := environment{"STOCK_MYSQL_DSN": shared.Database(t)}
	mustMigrate(t, env)
	return env
}

// openDB opens the database of the service, for the test to look into it.
func openDB(t *testing.T, env environment) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", env["STOCK_MYSQL_DSN"])
	must.Succeed(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// answer is the reply to a request.
type answer struct {
	status int
	body   map[string]any
}

// deduct sends a deduction, whose answer comes later.
func (p *program) deduct(strategy, query string) <-chan answer {
	done := make(chan answer, 1)
	go func() {
		status, body := p.call("POST", p.url+"/stock/deduct/"+strategy+"?goods_id=1&count=1&"+query)
		done <- answer{status, body}
	}()
	return done
}

// behindProxy puts a proxy before the MySQL server of an environment.
func behindProxy(t *testing.T, env environment) (*tcpproxy.Proxy, environment) {
	t.Helper()
	proxy, dsn := stocktest.ProxyMySQL(t, env["STOCK_MYSQL_DSN"])
	proxied := maps.Clone(env)
	proxied["STOCK_MYSQL_DSN"] = dsn
	return proxy, proxied
}

// park sends a deduction, and returns when the proxy holds back its first message for which match reports true. Its
// answer comes after the release.
func park(
	t *testing.T, p *program, proxy *tcpproxy.Proxy, strategy string, match func(tcpproxy.Message) bool,
) (parked <-chan answer, release func()) {
	t.Helper()
	message := proxy.Catch(match)
	parked = p.deduct(strategy, "store=mysql")
	select {
	case <-message.Arrived():
	case got := <-parked:
		t.Fatalf("the request ended before it was parked: %v", got)
	}
	return parked, message.Release
}

var writing = stocktest.Matching(regexp.MustCompile(`UPDATE good_stock SET stock`))

func (p *program) draining() bool {
	status, body := p.call("GET", p.admin+"/readyz")
	return status == 503 && body["status"] == "draining"
}

func TestShutdownFinishesTheRequestsInProgress(t *testing.T) {
	t.Parallel()
	for _, signal := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			proxy, env := behindProxy(t, migrated(t))
			p := launch(t, env, "serve")
			parked, release := park(t, p, proxy, "for-update", writing)
			p.signal(t, signal)
			eventually(t, "readyz answers 503", p.draining)
			eventually(t, "no connection is accepted", func() bool { return p.refuses() })
			select {
			case got := <-parked:
				t.Fatalf("the request was answered %v before it was released", got)
			default:
			}
			release()
			if got := <-parked; got.status != 200 {
				t.Errorf("the request ended with %v", got)
			}
			if state := p.wait(t); state.ExitCode() != 0 {
				t.Errorf("%v\n%s", state, p.log())
			}
		})
	}
}

// Locks that cannot be released expire. They are not a failure of the shutdown.
func TestShutdownSucceedsWhileALockServiceIsDown(t *testing.T) {
	t.Parallel()
	etcd := serverstest.StartEtcd(t, servers.EtcdOptions{Relaxed: true})
	env := migrated(t)
	env["STOCK_ETCD"] = etcd.Addr
	p := launch(t, env, "serve")
	p.expect(t, "POST", p.url+"/stock/deduct/lock-etcd?goods_id=1&count=1", 200)
	etcd.Kill()
	p.signal(t, syscall.SIGTERM)
	if state := p.wait(t); state.ExitCode() != 0 {
		t.Errorf("%v\n%s", state, p.log())
	}
}

func (p *program) refuses() bool {
	conn, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
	if err == nil {
		conn.Close()
	}
	return err != nil
}

// A load balancer may send a request on an open connection at any time. The reply must tell it to close the connection.
func TestShutdownServesOpenConnectionsOnceMore(t *testing.T) {
	t.Parallel()
	p := launch(t, migrated(t), "serve")
	conn, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
	must.Succeed(t, err)
	defer conn.Close()
	replies := bufio.NewReader(conn)
	deduct := func() (status int, last bool) {
		t.Helper()
		_, err := io.WriteString(conn, "POST /stock/deduct?goods_id=1&count=1 HTTP/1.1\r\nHost: stock\r\n\r\n")
		must.Succeed(t, err)
		response, err := http.ReadResponse(replies, nil)
		must.Succeed(t, err)
		defer response.Body.Close()
		_, _ = io.Copy(io.Discard, response.Body)
		return response.StatusCode, response.Close
	}
	if status, last := deduct(); status != 200 || last {
		t.Fatalf("before the shutdown: %d, Connection: close is %v", status, last)
	}
	p.signal(t, syscall.SIGTERM)
	eventually(t, "no connection is accepted", p.refuses)
	if status, last := deduct(); status != 200 || !last {
		t.Errorf("during the shutdown: %d, Connection: close is %v", status, last)
	}
	if state := p.wait(t); state.ExitCode() != 0 {
		t.Errorf("%v\n%s", state, p.log())
	}
}

func TestConnectionsAreAcceptedDuringTheDrainDelay(t *testing.T) {
	t.Parallel()
	p := launch(t, migrated(t), "serve", "--drain-delay=1m")
	p.signal(t, syscall.SIGTERM)
	eventually(t, "readyz answers 503", p.draining)
	p.expect(t, "GET", p.url+"/readyz", 503)
	p.expect(t, "POST", p.url+"/stock/deduct?goods_id=1&count=1", 200)
}

func TestSecondSignalKillsAtOnce(t *testing.T) {
	t.Parallel()
	proxy, env := behindProxy(t, migrated(t))
	p := launch(t, env, "serve")
	park(t, p, proxy, "for-update", writing)
	p.signal(t, syscall.SIGTERM)
	eventually(t, "readyz answers 503", p.draining)
	p.signal(t, syscall.SIGTERM)
	if status := p.wait(t).Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != syscall.SIGTERM {
		t.Errorf("the program ended with %v\n%s", status, p.log())
	}
}

// A canceled request is refused and releases its lock, which must not stay for a whole lease.
func TestTheDrainTimeoutCancelsTheRequestsInProgress(t *testing.T) {
	t.Parallel()
	server := serverstest.StartRedis(t, redisOptions)
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer client.Close()
	must.Succeed(t, client.Set(t.Context(), "stock:{1}", 6000, 0).Err())
	locks := func() []string { return client.Keys(t.Context(), "lock-*").Val() }

	p := launch(t, environment{"STOCK_REDIS": server.Addr}, "serve", "--max-hold=10s", "--drain-timeout=100ms")
	working := p.deduct("lock-redis-lua", "store=redis&hold_ms=10000")
	eventually(t, "the request has its lock", func() bool { return len(locks()) == 1 })
	p.signal(t, syscall.SIGTERM)
	if got := <-working; got.status != 503 || got.body["type"] != "/problems/busy" {
		t.Errorf("the request ended with %v, want 503 busy", got)
	}
	if state := p.wait(t); state.ExitCode() != 1 || !strings.Contains(p.log(), "still in progress") {
		t.Errorf("%v\n%s", state, p.log())
	}
	if left := locks(); len(left) > 0 {
		t.Errorf("the locks %v are left", left)
	}
	if units := client.Get(t.Context(), "stock:{1}").Val(); units != "6000" {
		t.Errorf("%s units are left, want all 6000", units)
	}
}

func TestServiceStartsWhileItsServersAreDown(t *testing.T) {
	serverstest.Long(t)
	t.Parallel()
	down := serverstest.FreeAddress(t)
	p := launch(t, environment{
		"STOCK_MYSQL_DSN": "root@tcp(" + down + ")/stock", "STOCK_REDIS": down,
		"STOCK_REDLOCK": "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3",
		"STOCK_ETCD":    down, "STOCK_ZOOKEEPER": down + ",no-such-host.invalid:2181",
	}, "serve")
	p.expect(t, "GET", p.url+"/livez", 200)
	p.expect(t, "GET", p.url+"/readyz", 503)
	p.expect(t, "POST", p.url+"/stock/deduct/noop?goods_id=1&count=1", 200)
	for _, strategy := range []string{
		"update", "lock-redis-lua", "lock-redlock", "lock-mysql-getlock", "lock-etcd", "lock-zookeeper",
	} {
		got := p.expect(t, "POST", p.url+"/stock/deduct/"+strategy+"?goods_id=1&count=1", 503)
		if got["type"] != "/problems/unavailable" {
			t.Errorf("%s: %v", strategy, got)
		}
	}
	if strings.Contains(p.log(), "[mysql]") || strings.Contains(p.log(), "redis: 2") {
		t.Errorf("a driver writes to standard error itself:\n%s", p.log())
	}
	p.signal(t, syscall.SIGTERM)
	if state := p.wait(t); state.ExitCode() != 0 {
		t.Errorf("%v\n%s", state, p.log())
	}
}

// The first answer of /readyz decides: a session of ZooKeeper takes a moment.
func TestAServiceWhoseServersAreUpIsReadyAtOnce(t *testing.T) {
	t.Parallel()
	p := launch(t, environment{"STOCK_ZOOKEEPER": shared.ZooKeeper(t)}, "serve")
	p.expect(t, "GET", p.url+"/readyz", 200)
	if strings.Contains(p.log(), "not ready") {
		t.Errorf("a warning although all is well:\n%s", p.log())
	}
}

func TestTheServiceDeletesExpiredSoldOutAnswers(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	db := openDB(t, env)
	_, err := db.ExecContext(t.Context(), `
		INSERT INTO ledger (order_key, line, goods_id, count, remaining, outcome, fingerprint, created_at)
		VALUES ('old', 0, 1, 0, 0, 'sold-out', '', UTC_TIMESTAMP(6) - INTERVAL 61 SECOND)`)
	must.Succeed(t, err)
	launch(t, env, "serve")
	eventually(t, "the answer is deleted", func() bool {
		var rows int
		err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM ledger").Scan(&rows)
		return err == nil && rows == 0
	})
}

func TestAnAddressInUseIsAFailure(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	defer taken.Close()
	for _, flag := range []string{"--listen", "--admin-listen"} {
		env := environment{"STOCK_LISTEN": "127.0.0.1:0", "STOCK_ADMIN_LISTEN": "127.0.0.1:0"}
		_, err := command(t, env, "serve", flag, taken.Addr().String())
		if exitCode(err) != 1 || !strings.Contains(err.Error(), "in use") {
			t.Errorf("%s: exit code %d, %v", flag, exitCode(err), err)
		}
	}
}

func TestTheAdminListenerCanBeOmitted(t *testing.T) {
	t.Parallel()
	p := launch(t, nil, "serve", "--admin-listen=")
	p.expect(t, "GET", p.url+"/livez", 200)
	if p.admin != "" {
		t.Errorf("it listens on %s", p.admin)
	}
}

func TestInnerWaitsAreShorterThanOuterOnes(t *testing.T) {
	t.Parallel()
	const lockWait, requestTimeout = 10 * time.Second, 15 * time.Second
	options := storeOptions{mysqlDSN: "root@tcp(h:3306)/stock"}
	config, err := options.mysqlConfig()
	must.Succeed(t, err)
	limitWaits(config, lockWait, requestTimeout)
	if config.ReadTimeout <= lockWait+time.Second || config.ReadTimeout >= requestTimeout ||
		config.Params["innodb_lock_wait_timeout"] != "10" {
		t.Errorf("MySQL: a read times out after %v, a wait for a row after %s s",
			config.ReadTimeout, config.Params["innodb_lock_wait_timeout"])
	}

	options.limitIdle(config, requestTimeout)
	if config.Params["wait_timeout"] != "20" {
		t.Errorf("MySQL ends a silent session after %s s", config.Params["wait_timeout"])
	}

	var o serveOptions
	o.RequestTimeout, o.Log = requestTimeout, slog.New(slog.DiscardHandler)
	public := o.publicServer(http.NotFoundHandler(), nil)
	if public.ReadHeaderTimeout <= 0 || public.WriteTimeout <= readTimeout+requestTimeout {
		t.Errorf("public listener: header %v, write %v", public.ReadHeaderTimeout, public.WriteTimeout)
	}
	if upstream := upstreamKeepalive(t); public.IdleTimeout <= upstream {
		t.Errorf("public listener: it closes idle connections after %v, before nginx does after %v",
			public.IdleTimeout, upstream)
	}
	admin := o.newServer(http.NotFoundHandler(), nil)
	if admin.ReadHeaderTimeout <= 0 || admin.IdleTimeout <= 0 || admin.WriteTimeout != 0 {
		t.Errorf("admin listener: header %v, idle %v, write %v",
			admin.ReadHeaderTimeout, admin.IdleTimeout, admin.WriteTimeout)
	}
}

// upstreamKeepalive returns the time after which nginx closes an idle connection to a replica.
func upstreamKeepalive(t *testing.T) time.Duration {
	t.Helper()
	upstream, _, _ := strings.Cut(nginx.StockTemplate, "\n}")
	match := regexp.MustCompile(`\skeepalive_timeout\s+(\w+);`).FindStringSubmatch(upstream)
	if match == nil {
		t.Fatal("nginx's upstream has no keepalive_timeout")
	}
	keepalive, err := time.ParseDuration(match[1])
	must.Succeed(t, err)
	return keepalive
}

func TestTheDSNMayShortenTimeouts(t *testing.T) {
	t.Parallel()
	for rowWait, want := range map[string]string{"3": "3", "50": "10"} {
		options := storeOptions{mysqlDSN: "root@tcp(h:3306)/stock?readTimeout=1s&" +
			"wait_timeout=60&innodb_lock_wait_timeout=" + rowWait}
		config, err := options.mysqlConfig()
		must.Succeed(t, err)
		limitWaits(config, 10*time.Second, 15*time.Second)
		options.limitIdle(config, 15*time.Second)
		if config.Params["wait_timeout"] != "60" {
			t.Errorf("wait_timeout is %s, want that of the DSN", config.Params["wait_timeout"])
		}
		if config.ReadTimeout != time.Second || config.Params["innodb_lock_wait_timeout"] != want {
			t.Errorf("%v, %v", config.ReadTimeout, config.Params)
		}
	}
}

func TestPoolMetricsAreExported(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	env["STOCK_REDIS"] = "127.0.0.1:1"
	env["STOCK_REDLOCK"] = "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3" // a server may serve both
	p := launch(t, env, "serve")
	p.expect(t, "POST", p.url+"/stock/deduct?goods_id=1&count=1", 200)
	metrics := p.read(t, "/metrics")
	for _, metric := range []string{
		`go_sql_max_open_connections{db_name="mysql"} 32`, `go_sql_max_open_connections{db_name="mysql_locks"} 32`,
		"go_goroutines", "process_cpu_seconds_total",
		`stock_redis_pool_gets_total{result="timeout",server="127.0.0.1:1",use="redis"} 0`,
		`stock_redis_pool_connections{server="127.0.0.1:1",state="used",use="redlock"} 0`,
		`stock_redis_pool_connections{server="127.0.0.1:3",state="used",use="redlock"} 0`,
	} {
		if !strings.Contains(metrics, metric) {
			t.Errorf("/metrics lacks %s", metric)
		}
	}
}
