package main

import (
	"database/sql"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"stock/internal/servers"
	"stock/internal/servers/serverstest"
	"stock/internal/stock"
	"stock/migrations"
)

// Under load a replica is killed, and then MySQL. Whatever was left open is sent again, with the same keys: nothing that
// was acknowledged is lost, and nothing is sold twice.
func TestNothingIsLostOrSoldTwiceWhenAReplicaAndMySQLAreKilled(t *testing.T) {
	t.Parallel()
	const buyers, untilReplica, untilMySQL = 8, 40, 120 // acknowledged orders
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

	type order struct {
		path, key string
		count     int
		answer    any // units remaining; nil where the outcome is open
	}
	send := func(p *program, o order) any {
		status, body := p.call(http.MethodPost, p.url+o.path, "Idempotency-Key", o.key)
		if status != http.StatusOK {
			return nil
		}
		return body["remaining"]
	}
	var (
		acknowledged atomic.Int64
		stop         = make(chan struct{})
		orders       = make([][]order, buyers)
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
				o := order{key: fmt.Sprintf("%d-%d", buyer, i), count: 1 + i%3}
				o.path = fmt.Sprintf("/stock/deduct/%s?goods_id=%d&count=%d", strategies[i%len(strategies)], migrations.FirstGoods, o.count)
				if o.answer = send([]*program{killed, survivor}[buyer%2], o); o.answer != nil {
					acknowledged.Add(1)
				}
				orders[buyer] = append(orders[buyer], o)
				if o.answer == nil && buyer%2 == 0 {
					return // its replica is dead
				}
			}
		})
	}
	eventually(t, "some orders are acknowledged", func() bool { return acknowledged.Load() >= untilReplica })
	if err := killed.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "more orders are acknowledged", func() bool { return acknowledged.Load() >= untilMySQL })
	server.Kill()
	close(stop)
	wg.Wait()

	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	replicas := []*program{survivor, launch(t, env, "serve")}
	sold, open := 0, 0
	for buyer := range orders {
		for i, o := range orders[buyer] {
			sold += o.count
			if o.answer == nil {
				open++
			}
			var again any
			eventually(t, "order "+o.key+" is answered", func() bool {
				again = send(replicas[i%2], o)
				return again != nil
			})
			if o.answer != nil && again != o.answer {
				t.Errorf("order %s was answered %v remaining, and after the crash %v", o.key, o.answer, again)
			}
		}
	}
	if open == 0 {
		t.Error("no order was left open: the test shows nothing")
	}
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var inLedger, left int
	err = db.QueryRowContext(t.Context(), "SELECT (SELECT SUM(count) FROM ledger), (SELECT stock FROM good_stock)").Scan(&inLedger, &left)
	if err != nil || inLedger != sold || left != migrations.FirstStock-sold {
		t.Errorf("%d units were sold; the ledger has %d, and %d of %d are left, %v", sold, inLedger, left, migrations.FirstStock, err)
	}
}
