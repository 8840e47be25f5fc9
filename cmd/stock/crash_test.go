package main

import (
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"stock/internal/must"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
)

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
	server, dsn := serverstest.StartDatabase(t, servers.MySQLOptions{})
	env := environment{"STOCK_MYSQL_DSN": dsn}
	mustMigrate(t, env)
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
	must.Succeed(t, killed.cmd.Process.Kill())
	reserves(100)
	server.Kill()
	must.Succeed(t, server.Restart(t.Context()))
	reserves(100)
	close(stop)
	wg.Wait()

	db := openDB(t, env)
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
