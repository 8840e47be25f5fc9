package main

import (
	"database/sql"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"stock/internal/servers"
	"stock/internal/servers/serverstest"
	"stock/internal/stock"
	"stock/migrations"
)

// A replica is killed under load, and then MySQL. All requests are sent again with the same keys.
func TestNothingIsLostOrSoldTwiceWhenAReplicaAndMySQLAreKilled(t *testing.T) {
	t.Parallel()
	const buyers, untilReplica, untilMySQL = 8, 40, 120 // acknowledged requests
	server := serverstest.StartMySQL(t, servers.MySQLOptions{})
	dsn, err := server.CreateDatabase(t.Context(), "stock")
	if err != nil {
		t.Fatal(err)
	}
	env := environment{"STOCK_MYSQL_DSN": dsn}
	if _, err := command(t, env, "migrate"); err != nil {
		t.Fatal(err)
	}
	killed, survivor := launch(t, env, "serve"), launch(t, env, "serve")
	var strategies []string
	for _, s := range stock.Catalogue {
		if s.Idempotent && s.Stores[0] == stock.MySQL {
			strategies = append(strategies, s.Name)
		}
	}

	type deduction struct {
		path, key string
		count     int
		before    bool // sent before its server was killed
		answer    any  // units remaining; nil if the outcome is unknown
	}
	send := func(p *program, o deduction) any {
		status, body := p.call(http.MethodPost, p.url+o.path, "Idempotency-Key", o.key)
		if status != http.StatusOK {
			return nil
		}
		return body["remaining"]
	}
	var (
		acknowledged atomic.Int64
		killing      atomic.Bool // the replica of the even buyers
		stop         = make(chan struct{})
		sent         = make([][]deduction, buyers)
		wg           sync.WaitGroup
	)
	for buyer := range buyers {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				o := deduction{key: fmt.Sprintf("%d-%d", buyer, i), count: 1 + i%3}
				o.path = fmt.Sprintf("/stock/deduct/%s?goods_id=%d&count=%d",
					strategies[i%len(strategies)], migrations.FirstGoods, o.count)
				o.before = buyer%2 == 1 || !killing.Load()
				if o.answer = send([]*program{killed, survivor}[buyer%2], o); o.answer != nil {
					acknowledged.Add(1)
				}
				sent[buyer] = append(sent[buyer], o)
				if o.answer == nil && buyer%2 == 0 {
					return // its replica is dead
				}
			}
		})
	}
	eventually(t, "some requests are acknowledged", func() bool { return acknowledged.Load() >= untilReplica })
	killing.Store(true)
	if err := killed.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "more requests are acknowledged", func() bool { return acknowledged.Load() >= untilMySQL })
	server.Kill()
	close(stop)
	wg.Wait()

	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	replicas := []*program{survivor, launch(t, env, "serve")}
	sold, open := 0, 0
	for buyer := range sent {
		for i, o := range sent[buyer] {
			sold += o.count
			if o.answer == nil && o.before {
				open++
			}
			var again any
			eventually(t, "request "+o.key+" is answered", func() bool {
				again = send(replicas[i%2], o)
				return again != nil
			})
			if o.answer != nil && again != o.answer {
				t.Errorf("request %s: %v units remained, and %v after the crash", o.key, o.answer, again)
			}
		}
	}
	if open == 0 {
		t.Error("no request was in progress when a server was killed: the test shows nothing")
	}
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var inLedger, left int
	err = db.QueryRowContext(t.Context(), "SELECT (SELECT SUM(count) FROM ledger), (SELECT stock FROM good_stock)").
		Scan(&inLedger, &left)
	if err != nil || inLedger != sold || left != migrations.FirstStock-sold {
		t.Errorf("%d units were sold; the ledger has %d, and %d of %d are left, %v",
			sold, inLedger, left, migrations.FirstStock, err)
	}
}

// A replica is killed under load, then MySQL, then Redis. Every confirmed sale reaches MySQL, and none does twice.
func TestNothingIsLostOrSoldTwiceByRedisStreamWhenAReplicaMySQLAndRedisAreKilled(t *testing.T) {
	t.Parallel()
	const plenty = 1_000_000
	inMySQL := serverstest.StartMySQL(t, servers.MySQLOptions{})
	dsn, err := inMySQL.CreateDatabase(t.Context(), "stock")
	if err != nil {
		t.Fatal(err)
	}
	inRedis := serverstest.StartRedis(t, servers.RedisOptions{AOF: true, Fsync: "always"})
	env := environment{"STOCK_MYSQL_DSN": dsn, "STOCK_REDIS": inRedis.Addr, "STOCK_LEASE": "500ms"}
	if _, err := command(t, env, "migrate"); err != nil {
		t.Fatal(err)
	}
	killed, survivor := launch(t, env, "serve"), launch(t, env, "serve")
	survivor.setStock(t, 1, plenty)
	var confirmed, unknown atomic.Int64
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for buyer := range 8 {
		wg.Go(func() {
			p := []*program{killed, survivor}[buyer%2]
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				count := 1 + i%3
				status, _ := p.call(http.MethodPost, fmt.Sprintf("%s/stock/deduct/redis-stream?goods_id=1&count=%d", p.url, count))
				switch status {
				case http.StatusOK:
					confirmed.Add(int64(count))
				case http.StatusInternalServerError:
					unknown.Add(int64(count))
				case http.StatusServiceUnavailable:
					time.Sleep(time.Millisecond) // Redis is down
				case 0:
					unknown.Add(int64(count))
					if p == survivor {
						t.Error("the surviving replica did not answer")
					}
					return
				default:
					t.Errorf("status %d", status)
					return
				}
			}
		})
	}
	sells := func(units int64) {
		t.Helper()
		from := confirmed.Load()
		eventually(t, "units are sold", func() bool { return confirmed.Load() >= from+units })
	}
	sells(200)
	if err := killed.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	sells(100)
	inMySQL.Kill()
	sells(100) // buyers do not notice
	inRedis.Kill()
	if err := inRedis.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	sells(100)
	if err := inMySQL.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	sells(100)
	close(stop)
	wg.Wait()

	eventually(t, "every sale is in MySQL", func() bool { return survivor.backlog(t) == "0" })
	left := survivor.expect(t, http.MethodGet, survivor.url+"/stock/1", http.StatusOK)["stock"].(float64)
	if durable := plenty - int64(left); durable < confirmed.Load() || durable > confirmed.Load()+unknown.Load() {
		t.Errorf("%d units were confirmed, %d are unknown, and MySQL has deducted %d",
			confirmed.Load(), unknown.Load(), durable)
	}
	if out, err := command(t, env, "reconcile"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
