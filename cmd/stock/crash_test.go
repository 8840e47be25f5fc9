package main

import (
	"database/sql"
	"fmt"
	"net/http"
	"slices"
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

// keyedStrategies returns the correct strategies that keep keys in MySQL, and may be mixed.
func keyedStrategies() (names []string) {
	for _, s := range catalogue.Strategies {
		if s.Idempotent() && s.New != nil && s.Stores[0] == stock.MySQL && s.Claim.TwoReplicas == stock.Correct {
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
	strategies := keyedStrategies()
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

// reserveUntil holds units, one at a time, and confirms every other one, until stop is closed or the replica dies. It
// counts the holds that were acknowledged, and returns the ids of the reservations that were confirmed.
func reserveUntil(
	t *testing.T, stop <-chan struct{}, p *program, acknowledged *atomic.Int64,
) (confirmed []string) {
	const body = `{"goods_id":1,"count":1,"ttl_ms":4000}`
	for i := 0; ; i++ {
		select {
		case <-stop:
			return confirmed
		default:
		}
		status, held := p.send(http.MethodPost, p.url+"/stock/reservations", body)
		switch status {
		case http.StatusCreated:
		case http.StatusServiceUnavailable:
			time.Sleep(time.Millisecond) // MySQL is down
			continue
		case http.StatusInternalServerError:
			continue
		case 0:
			return confirmed
		default:
			t.Errorf("hold: status %d: %v", status, held)
			return confirmed
		}
		id := held["id"].(string)
		acknowledged.Add(1)
		if i%2 == 0 {
			continue
		}
		if status, _ := p.send(http.MethodPost, p.url+"/stock/reservations/"+id+"/confirm", ""); status == http.StatusOK {
			confirmed = append(confirmed, id)
		}
	}
}

// A replica is killed under load, and then MySQL. What was confirmed stays sold, and everything else comes back.
func TestNoUnitIsLostOrHeldForEverWhenAReplicaAndMySQLAreKilled(t *testing.T) {
	t.Parallel()
	const buyers, initial = 8, 1_000_000
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
	survivor.setStock(t, 1, initial)
	var (
		acknowledged atomic.Int64
		stop         = make(chan struct{})
		sold         [buyers][]string // ids of reservations
		wg           sync.WaitGroup
	)
	for buyer := range sold {
		wg.Go(func() {
			sold[buyer] = reserveUntil(t, stop, []*program{killed, survivor}[buyer%2], &acknowledged)
		})
	}
	reserves := func(more int64) {
		t.Helper()
		from := acknowledged.Load()
		eventually(t, "units are held", func() bool { return acknowledged.Load() >= from+more })
	}
	reserves(100)
	if err := killed.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	reserves(100)
	server.Kill()
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	reserves(100)
	close(stop)
	wg.Wait()

	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var left, held, confirmed int
	eventually(t, "no unit is held", func() bool {
		err := db.QueryRowContext(t.Context(), `SELECT (SELECT stock FROM good_stock WHERE goods_id = 1),
			COALESCE(SUM(state = 'held'), 0), COALESCE(SUM(state = 'confirmed'), 0) FROM reservation`).
			Scan(&left, &held, &confirmed)
		return err == nil && held == 0
	})
	if left+confirmed != initial {
		t.Errorf("%d units are left and %d confirmed, of %d", left, confirmed, initial)
	}
	for _, id := range slices.Concat(sold[:]...) {
		found := survivor.expect(t, http.MethodGet, survivor.url+"/stock/reservations/"+id, http.StatusOK)
		if found["state"] != "confirmed" {
			t.Errorf("a confirmed reservation is %v", found)
		}
	}
}
