package stocktest

import (
	"context"
	"testing"
	"time"

	"stock/internal/must"
	"stock/internal/stock"
)

// holdScripts test strategies that take reservations.
var holdScripts = []script{
	{"confirms or cancels a reservation once", []int64{10}, `
		hold 3 x  | 7 remain           | 7
		find x    | held               | 7
		confirm x | confirmed          | 7
		confirm x | confirmed          | 7
		release x | refused: confirmed | 7
		hold 2 y  | 5 remain           | 5
		release y | cancelled          | 7
		release y | cancelled          | 7
		confirm y | refused: cancelled | 7`},
	{"ends a reservation whose time has passed", []int64{10}, `
		hold 3 x  | 7 remain         | 7
		lapse x   |                  | 7
		confirm x | refused: expired | 10
		release x | expired          | 10
		hold 3 y  | 7 remain         | 7
		lapse y   |                  | 7
		release y | expired          | 10
		find y    | expired          | 10
		hold 3 z  | 7 remain         | 7
		lapse z   |                  | 7
		find z    | expired          | 10
		confirm z | refused: expired | 10`},
	{"takes back what has expired before it refuses", []int64{10, 1}, `
		hold 1b w | 0 remain      | 10 0
		hold 3 x  | 7 remain      | 7 0
		hold 4 y  | 3 remain      | 3 0
		hold 2 z  | 1 remain      | 1 0
		hold 2 v  | sold out at 1 | 1 0
		lapse w   |               | 1 0
		lapse x   |               | 1 0
		lapse y   |               | 1 0
		hold 9 v  | sold out at 8 | 8 0
		hold 8 v  | 0 remain      | 0 0
		find z    | held          | 0 0`},
	{"takes back what has expired before it refuses a sale with a key", []int64{10}, `
		hold 6 x  | 4 remain       | 4
		lapse x   |                | 4
		sell 11 k | sold out at 10 | 10
		hold 6 y  | 4 remain       | 4
		lapse y   |                | 4
		sell 10 l | 0 remain       | 0`},
	{"puts no units back into another stock", []int64{10}, `
		hold 1 w  | 9 remain      | 9
		hold 2 x  | 7 remain      | 7
		hold 3 y  | 4 remain      | 4
		hold 4 z  | 0 remain      | 0
		set 5     |               | 5
		release w | cancelled     | 5
		confirm z | confirmed     | 5
		lapse y   |               | 5
		hold 6 v  | sold out at 5 | 5
		lapse x   |               | 5
		find x    | expired       | 5`},
	{"holds once for each key", []int64{10}, `
		hold 3 x k      | 7 remain            | 7
		hold 3 x k      | held, replayed      | 7
		confirm x       | confirmed           | 7
		hold 3 x k      | confirmed, replayed | 7
		work hold 3 x k | confirmed, replayed | 7
		hold 2 x k      | key reused          | 7
		work hold 2 x k | key reused          | 7
		cancel k        | key reused          | 7`},
	{"refuses a hold with a key again", []int64{2}, `
		hold 1 x          | 1 remain                | 1
		hold 3 y one      | sold out at 1           | 1
		work hold 3 y two | sold out at 1           | 1
		lapse x           |                         | 1
		hold 3 y three    | sold out at 2           | 2
		set 10            |                         | 10
		work hold 3 y one | sold out at 1, replayed | 10
		hold 3 y two      | sold out at 1, replayed | 10
		hold 3 y three    | sold out at 2, replayed | 10
		hold 2 y one      | key reused              | 10`},
	{"holds nothing for a key that was cancelled", []int64{10}, `
		cancel k        | never-sold          | 10
		hold 3 x k      | cancelled, replayed | 10
		try hold 3 x k  | cancelled, replayed | 10
		work hold 3 x k | cancelled, replayed | 10
		hold 11 x l     | sold out at 10      | 10
		cancel l        | never-sold          | 10
		set 20          |                     | 20
		hold 11 x l     | cancelled, replayed | 20`},
}

// holdTTL is how long reservations of scripts last.
const holdTTL = time.Hour

// hold holds units as the reservation of a name, and describes the answer.
func (p player) hold(ctx context.Context, t *testing.T, replica int, name string, req stock.Request) string {
	t.Helper()
	d := p.replicas[replica].deducter.(stock.Reserver)
	held, receipt, err := d.Hold(ctx, stock.HoldRequest{Request: req, TTL: holdTTL})
	switch {
	case err != nil || !receipt.Replayed:
		p.held[name] = held.ID
		return Answer{receipt, err}.String()
	case held.ID != p.held[name]:
		t.Errorf("the replay is of the reservation %s, want %s", held.ID, p.held[name])
	}
	return string(held.State) + ", replayed"
}

// reservation asks for a reservation, and describes the answer.
func (p player) reservation(ctx context.Context, t *testing.T, replica int, verb, name string) string {
	t.Helper()
	d := p.replicas[replica].deducter.(stock.Reserver)
	ask := map[string]func(context.Context, stock.ReservationID) (stock.Reservation, error){
		"find": d.Reservation, "confirm": d.Confirm, "release": d.Cancel,
	}[verb]
	id := p.held[name]
	found, err := ask(ctx, id)
	if err != nil {
		return Answer{Err: err}.String()
	}
	ended := found.State != stock.Held
	if found.ID != id || found.Ended.IsZero() == ended || !ended && found.Expires.Sub(found.Created) != holdTTL {
		t.Errorf("the fields of the reservation contradict each other: %+v", found)
	}
	return string(found.State)
}

// lapse lets the time of a reservation pass.
func (p player) lapse(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	id := p.held[name]
	_, err := p.replicas[0].service.deps.MySQL.ExecContext(ctx,
		"UPDATE reservation SET expires_at = UTC_TIMESTAMP(6) WHERE id = ?", id[:])
	must.Succeed(t, err)
}
