package main

import (
	"database/sql"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	"stock/internal/servers"
)

var redisOptions servers.RedisOptions

// migrated is the environment of a service whose database is ready.
func migrated(t *testing.T) environment {
	t.Helper()
	env := environment{"STOCK_MYSQL_DSN": shared.Database(t)}
	if _, err := command(t, env, "migrate"); err != nil {
		t.Fatal(err)
	}
	return env
}

// parkOne sends a deduction that stops in the middle, and returns when it is there. Its status comes later.
func parkOne(t *testing.T, p *program) <-chan int {
	t.Helper()
	done := make(chan int, 1)
	go func() {
		status, _ := p.call("POST", p.url+"/stock/deduct/for-update?goods_id=1&count=1", "X-Request-Id", "parked", "X-Pause", "after-read")
		done <- status
	}()
	eventually(t, "the request is parked", func() bool { return p.parked() })
	return done
}

func (p *program) parked() bool {
	response, err := http.Get(p.admin + "/metrics")
	if err != nil {
		return false
	}
	defer response.Body.Close()
	var text strings.Builder
	_ = response.Write(&text)
	return strings.Contains(text.String(), "stock_parked_requests 1\n")
}

func (p *program) draining() bool {
	status, body := p.call("GET", p.admin+"/readyz")
	return status == 503 && body["status"] == "draining"
}

func TestShutdownFinishesTheRequestsUnderWay(t *testing.T) {
	t.Parallel()
	for _, signal := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			p := launch(t, migrated(t), "serve", "--pause-points")
			status := parkOne(t, p)
			p.signal(t, signal)
			eventually(t, "readyz answers 503", p.draining)
			eventually(t, "no connection is accepted", func() bool { return p.refuses() })
			select {
			case got := <-status:
				t.Fatalf("the request ended with %d before it was released", got)
			default:
			}
			p.expect(t, "DELETE", p.admin+"/admin/pauses/parked", 200)
			if got := <-status; got != 200 {
				t.Errorf("the request ended with %d", got)
			}
			if state := p.wait(t); state.ExitCode() != 0 {
				t.Errorf("%v\n%s", state, p.log())
			}
		})
	}
}

func (p *program) refuses() bool {
	conn, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
	if err == nil {
		conn.Close()
	}
	return err != nil
}

func TestDrainDelayStillServesWhileReadyzSays503(t *testing.T) {
	t.Parallel()
	p := launch(t, migrated(t), "serve", "--drain-delay=1m")
	p.signal(t, syscall.SIGTERM)
	eventually(t, "readyz answers 503", p.draining)
	p.expect(t, "GET", p.url+"/readyz", 503)
	p.expect(t, "POST", p.url+"/stock/deduct?goods_id=1&count=1", 200)
}

func TestSecondSignalKillsAtOnce(t *testing.T) {
	t.Parallel()
	p := launch(t, migrated(t), "serve", "--pause-points")
	parkOne(t, p)
	p.signal(t, syscall.SIGTERM)
	eventually(t, "readyz answers 503", p.draining)
	p.signal(t, syscall.SIGTERM)
	if status := p.wait(t).Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != syscall.SIGTERM {
		t.Errorf("it ended with %v\n%s", status, p.log())
	}
}

// The row lock of the one that is canceled must be given back, whatever it was doing.
func TestDrainTimeoutCancelsWhatIsStillUnderWay(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	p := launch(t, env, "serve", "--pause-points", "--drain-timeout=100ms")
	status := parkOne(t, p)
	p.signal(t, syscall.SIGTERM)
	<-status
	if state := p.wait(t); state.ExitCode() != 1 || !strings.Contains(p.log(), "still under way") {
		t.Errorf("%v\n%s", state, p.log())
	}
	next := launch(t, env, "serve")
	next.expect(t, "POST", next.url+"/stock/deduct/for-update?goods_id=1&count=1", 200)
}

func TestServiceStartsWhileItsServersAreDown(t *testing.T) {
	t.Parallel()
	down := closedAddress(t)
	p := launch(t, environment{
		"STOCK_MYSQL_DSN": "root@tcp(" + down + ")/stock", "STOCK_REDIS": down, "STOCK_REDLOCK": "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3",
	}, "serve")
	p.expect(t, "GET", p.url+"/livez", 200)
	p.expect(t, "GET", p.url+"/readyz", 503)
	p.expect(t, "POST", p.url+"/stock/deduct/noop?goods_id=1&count=1", 200)
	for _, strategy := range []string{"update", "lock-redis-lua", "lock-redlock"} {
		if got := p.expect(t, "POST", p.url+"/stock/deduct/"+strategy+"?goods_id=1&count=1", 503); got["type"] != "/problems/unavailable" {
			t.Errorf("%s: %v", strategy, got)
		}
	}
	if strings.Contains(p.log(), "[mysql]") || strings.Contains(p.log(), "redis: 2") {
		t.Errorf("a driver writes past the log:\n%s", p.log())
	}
	p.signal(t, syscall.SIGTERM)
	if state := p.wait(t); state.ExitCode() != 0 {
		t.Errorf("%v\n%s", state, p.log())
	}
}

func TestAddressInUseIsAFailureOfItsOwn(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, flag := range []string{"--listen", "--admin-listen"} {
		_, err := command(t, environment{"STOCK_LISTEN": "127.0.0.1:0", "STOCK_ADMIN_LISTEN": "127.0.0.1:0"}, "serve", flag, taken.Addr().String())
		if exitCode(err) != 1 || !strings.Contains(err.Error(), "in use") {
			t.Errorf("%s: exit code %d, %v", flag, exitCode(err), err)
		}
	}
}

func TestTheAdminListenerCanBeLeftOut(t *testing.T) {
	t.Parallel()
	p := launch(t, nil, "serve", "--admin-listen=")
	p.expect(t, "GET", p.url+"/livez", 200)
	if p.admin != "" {
		t.Errorf("it listens on %s", p.admin)
	}
}

func TestTheDSNIsNormalised(t *testing.T) {
	t.Parallel()
	config, err := parseDSN("root@tcp(127.0.0.1:3306)/stock?interpolateParams=false&parseTime=false&clientFoundRows=false")
	if err != nil {
		t.Fatal(err)
	}
	if !config.InterpolateParams || !config.ParseTime || !config.ClientFoundRows || config.Timeout == 0 {
		t.Errorf("%+v", config)
	}
}

func TestAWaitForALockedRowEndsWithAnAnswer(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	p := launch(t, env, "serve", "--lock-wait=1s")
	db, err := sql.Open("mysql", env["STOCK_MYSQL_DSN"])
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.Exec("UPDATE good_stock SET version = version + 1 WHERE goods_id = 1"); err != nil {
		t.Fatal(err)
	}
	for _, strategy := range []string{"update", "for-update"} {
		body := p.expect(t, "POST", p.url+"/stock/deduct/"+strategy+"?goods_id=1&count=1", 503)
		if body["type"] != "/problems/busy" {
			t.Errorf("%s: %v, want busy", strategy, body)
		}
	}
}

func TestPoolMetricsAreExported(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	env["STOCK_REDIS"] = closedAddress(t)
	p := launch(t, env, "serve")
	p.expect(t, "POST", p.url+"/stock/deduct?goods_id=1&count=1", 200)
	response, err := http.Get(p.admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var text strings.Builder
	if err := response.Write(&text); err != nil {
		t.Fatal(err)
	}
	for _, metric := range []string{
		`go_sql_max_open_connections{db_name="mysql"} 32`, `stock_redis_pool_gets_total{result="timeout"}`, "go_goroutines", "process_cpu_seconds_total",
	} {
		if !strings.Contains(text.String(), metric) {
			t.Errorf("/metrics lacks %s", metric)
		}
	}
}
