package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"stock/internal/must"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
	"stock/internal/stock/catalogue"
)

// size is what a replica uses.
type size struct {
	goroutines, files int
	heap              int // bytes that are in use after a garbage collection
}

// size reads the replica's metrics after a garbage collection.
func (p *program) size(t *testing.T) (s size) {
	t.Helper()
	p.read(t, "/debug/pprof/heap?gc=1")
	for line := range strings.Lines(p.read(t, "/metrics")) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		value, _ := strconv.ParseFloat(text, 64)
		switch name {
		case "go_goroutines":
			s.goroutines = int(value)
		case "process_open_fds":
			s.files = int(value)
		case "go_memstats_heap_alloc_bytes":
			s.heap = int(value)
		}
	}
	return s
}

// read returns what the admin listener answers.
func (p *program) read(t *testing.T, path string) string {
	t.Helper()
	response, err := http.Get(p.admin + path)
	must.Succeed(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	must.Succeed(t, err)
	return string(body)
}

// peak carries out an attack and returns the most that the replica uses during it.
func (p *program) peak(t *testing.T, attack func() (end func())) (peak size) {
	t.Helper()
	done := make(chan struct{})
	var end func()
	go func() {
		defer close(done)
		end = attack()
	}()
	for attacking := true; attacking; {
		select {
		case <-done:
			attacking = false
		case <-time.After(50 * time.Millisecond):
		}
		now := p.size(t)
		peak.goroutines = max(peak.goroutines, now.goroutines)
		peak.files = max(peak.files, now.files)
		peak.heap = max(peak.heap, now.heap)
	}
	if end != nil {
		end()
	}
	return peak
}

// The limits are far above what a replica needs for as many clients as attack it, and far below what it used before
// each of these attacks was bounded.
const (
	attackers      = 50
	moreGoroutines = 20 * attackers
	moreHeap       = 32 << 20
	// The pools keep connections, each with a file and a few goroutines.
	keptFiles, keptGoroutines, keptHeap = 64, 128, 8 << 20
)

// mysqlConns is the --mysql-conns of the replica. It and the test use no more than four others.
const mysqlConns = 8

// shrinkLimit is half of the default lease: nothing may be kept until a lease has ended.
const shrinkLimit = 15 * time.Second

// attacks are what clients and servers do to a replica.
var attacks = []struct {
	name string
	// run ends when the attack is at its peak. It returns a function that ends the attack, or nil if it is over.
	run func(t *testing.T, p *program, s attackedServers) (end func())
}{
	{"slow readers of the documentation", readSlowly},
	{"locks while Redis is down", lockWithoutRedis},
	{"buyers of a locked item who hang up", buyLockedItem},
	{"locks of unknown items", lockUnknownItems},
	{"requests that are incomplete or malformed", sendRubbish},
}

// attackedServers are the servers of one replica.
type attackedServers struct {
	dsn   string
	redis *servers.Redis
}

func TestAReplicaReturnsToItsSizeAfterAnAttack(t *testing.T) {
	t.Parallel()
	for _, attack := range attacks {
		t.Run(attack.name, func(t *testing.T) {
			t.Parallel()
			redis := serverstest.StartRedis(t, servers.RedisOptions{})
			env := environment{"STOCK_MYSQL_DSN": shared.Database(t), "STOCK_REDIS": redis.Addr}
			mustMigrate(t, env)
			p := launch(t, env, "serve", "--lock-wait=2s", fmt.Sprintf("--mysql-conns=%d", mysqlConns))
			p.expect(t, "GET", p.url+"/readyz", 200)
			before := p.size(t)

			peak := p.peak(t, func() (end func()) {
				return attack.run(t, p, attackedServers{env["STOCK_MYSQL_DSN"], redis})
			})
			if peak.goroutines > before.goroutines+moreGoroutines || peak.heap > before.heap+moreHeap {
				t.Errorf("during the attack the replica uses %+v, before %+v", peak, before)
			}
			var after size
			for deadline := time.Now().Add(shrinkLimit); ; time.Sleep(50 * time.Millisecond) {
				after = p.size(t)
				if after.goroutines <= before.goroutines+keptGoroutines && after.files <= before.files+keptFiles &&
					after.heap <= before.heap+keptHeap {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("%v after the attack the replica uses %+v, before %+v", shrinkLimit, after, before)
				}
			}
			t.Logf("before %+v, peak %+v, after %+v", before, peak, after)
			p.expect(t, "POST", p.url+"/stock/deduct/update?goods_id=1&count=1", 200)
		})
	}
}

// inParallel calls attack once for each attacker.
func inParallel(attack func(attacker int)) {
	var wg sync.WaitGroup
	for i := range attackers {
		wg.Go(func() { attack(i) })
	}
	wg.Wait()
}

// dialSlow connects with a receive buffer that is too small for most replies.
func dialSlow(p *program) (net.Conn, error) {
	dialer := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		failed := raw.Control(func(fd uintptr) {
			err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4<<10)
		})
		return errors.Join(failed, err)
	}}
	return dialer.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
}

func readSlowly(t *testing.T, p *program, _ attackedServers) (end func()) {
	var open sync.WaitGroup
	release := make(chan struct{})
	for range 4 * attackers {
		open.Add(1)
		conn, err := dialSlow(p)
		if err != nil {
			t.Error(err)
			return nil
		}
		go func() {
			defer conn.Close()
			_, _ = io.WriteString(conn, "GET /docs/swagger-ui-bundle.js HTTP/1.1\r\nHost: stock\r\n\r\n")
			if _, err := conn.Read(make([]byte, 16)); err != nil {
				t.Errorf("no reply: %v", err)
			}
			open.Done()
			<-release
		}()
	}
	open.Wait()
	return func() { close(release) }
}

func lockWithoutRedis(_ *testing.T, p *program, s attackedServers) (end func()) {
	s.redis.Kill()
	var names []string
	for _, strategy := range catalogue.Strategies {
		if strings.HasPrefix(strategy.Name, "lock-redis-") {
			names = append(names, strategy.Name)
		}
	}
	inParallel(func(attacker int) {
		for i := range 100 {
			p.call("POST", fmt.Sprintf("%s/stock/deduct/%s?goods_id=1&count=1", p.url, names[(attacker+i)%len(names)]))
		}
	})
	return nil
}

func buyLockedItem(t *testing.T, p *program, s attackedServers) (end func()) {
	db, err := sql.Open("mysql", s.dsn)
	if err != nil {
		t.Error(err)
		return nil
	}
	defer db.Close()
	tx, err := db.Begin()
	if err != nil {
		t.Error(err)
		return nil
	}
	defer tx.Rollback()
	if _, err := tx.Exec("UPDATE good_stock SET version = version + 1 WHERE goods_id = 1"); err != nil {
		t.Error(err)
		return nil
	}
	strategies := []string{"update", "for-update", "batch", "lock-redis-queue"}
	inParallel(func(attacker int) {
		for i := range 10 {
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			strategy := strategies[(attacker+i)%len(strategies)]
			url := p.url + "/stock/deduct/" + strategy + "?goods_id=1&count=1"
			request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
			if err != nil {
				t.Error(err)
			} else if response, err := http.DefaultClient.Do(request); err == nil {
				response.Body.Close()
			}
			cancel()
		}
	})
	var sessions int
	err = tx.QueryRow("SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE()").Scan(&sessions)
	if err != nil || sessions > mysqlConns+4 {
		t.Errorf("MySQL has %d sessions, %v, with a pool of %d", sessions, err, mysqlConns)
	}
	return nil
}

func lockUnknownItems(_ *testing.T, p *program, _ attackedServers) (end func()) {
	inParallel(func(attacker int) {
		for i, strategy := range catalogue.Strategies {
			for j := range 3 {
				id := 1000 + 1000*attacker + 10*i + j
				p.call("POST", fmt.Sprintf("%s/stock/deduct/%s?goods_id=%d&count=1", p.url, strategy.Name, id))
			}
		}
	})
	return nil
}

func sendRubbish(t *testing.T, p *program, _ attackedServers) (end func()) {
	rubbish := []string{
		"", "\x00\xff", "POST /stock/deduct HTTP/1.1\r\nHost: stock\r\n", "GET / HTTP/9.9\r\n\r\n",
		"POST /stock/deduct HTTP/1.1\r\nHost: stock\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{",
		"POST /stock/deduct HTTP/1.1\r\nHost: stock\r\nContent-Length: 4000000000\r\n\r\n",
	}
	inParallel(func(attacker int) {
		for i := range 10 {
			conn, err := dialSlow(p)
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.WriteString(conn, rubbish[(attacker+i)%len(rubbish)])
			if attacker%2 == 0 {
				conn.Close()
			} else {
				t.Cleanup(func() { conn.Close() }) // the replica must not wait for it
			}
		}
	})
	return nil
}
