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
	"stock/internal/stock/catalogue"
	"stock/migrations"
)

// deduction is a request with an idempotency key.
type deduction struct {
	path, key string
	count     int
	before    bool // sent before its server was killed
	answer    any  // units remaining; nil if the outcome is unknown
}

// send returns the units remaining, or nil if the outcome is unknown.
func (d deduction) send(p *program) any {
	status, body := p.call(http.MethodPost, p.url+d.path, "Idempotency-Key", d.key)
	if status != http.StatusOK {
		return nil
	}
	return body["remaining"]
}

// sendAgain sends a deduction until it is answered. An earlier answer must be repeated.
func (d deduction) sendAgain(t *testing.T, p *program) {
	t.Helper()
	var again any
	eventually(t, "request "+d.key+" is answered", func() bool {
		again = d.send(p)
		return again != nil
	})
	if d.answer != nil && again != d.answer {
		t.Errorf("request %s: %v units remained, and %v after the crash", d.key, d.answer, again)
	}
}

// ledgerStrategies returns the strategies that accept idempotency keys in MySQL.
func ledgerStrategies() (names []string) {
	for _, s := range catalogue.Strategies {
		if s.Idempotent && s.Stores[0] == stock.MySQL {
			names = append(names, s.Name)
		}
	}
	return names
}

// checkBooks checks that MySQL has deducted what was sold.
func checkBooks(t *testing.T, dsn string, sold int) {
	t.Helper()
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
	strategies := ledgerStrategies()
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
				if o.answer = o.send([]*program{killed, survivor}[buyer%2]); o.answer != nil {
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
			o.sendAgain(t, replicas[i%2])
		}
	}
	if open == 0 {
		t.Error("no request was in progress when a server was killed: the test shows nothing")
	}
	checkBooks(t, dsn, sold)
}

// buyUntil deducts with redis-stream until stop is closed. It returns early if the replica dies, and counts the units
// that were confirmed and those whose outcome is unknown.
func buyUntil(t *testing.T, stop <-chan struct{}, p *program, confirmed, unknown *atomic.Int64) (died bool) {
	for i := 0; ; i++ {
		select {
		case <-stop:
			return false
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
			return true
		default:
			t.Errorf("status %d", status)
			return false
		}
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
			if died := buyUntil(t, stop, p, &confirmed, &unknown); died && p == survivor {
				t.Error("the surviving replica did not answer")
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
