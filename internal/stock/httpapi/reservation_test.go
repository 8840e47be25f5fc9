package httpapi_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"

	"stock/internal/must"
	"stock/internal/stock"
)

const reservations = "/stock/reservations"

// newShop makes a replica with ten units of item 1.
func newShop(t *testing.T) (*replica, *sqlx.DB) {
	t.Helper()
	db := database(t)
	r := newReplica(t, options{deps: stock.Deps{MySQL: db}, sweeps: true, strategy: "update"})
	do(t, request{method: http.MethodPut, url: r.admin + "/admin/stock/1", body: `{"stock":10}`}).want(t, 200, "")
	return r, db
}

// hold holds two units for a minute and returns the URL of the reservation.
func (r *replica) hold(t *testing.T) (url string) {
	t.Helper()
	held := post(t, r.public+reservations, `{"goods_id":1,"count":2,"ttl_ms":60000}`).want(t, 201, "")
	return r.public + reservations + "/" + held.json["id"].(string)
}

func (r *replica) wantStock(t *testing.T, units string) {
	t.Helper()
	if got := get(t, r.public+"/stock/1").text(t, "stock"); got != units {
		t.Errorf("%s units are left, want %s", got, units)
	}
}

func TestAReservationOverHTTP(t *testing.T) {
	t.Parallel()
	r, _ := newShop(t)
	held := post(t, r.public+reservations, `{"goods_id":1,"count":2,"ttl_ms":60000}`).want(t, 201, "")
	strategy := held.header.Get("X-Strategy")
	if held.text(t, "state") != `"held"` || held.text(t, "remaining") != "8" || strategy != "reserve" {
		t.Errorf("held: %s", held.raw)
	}
	var times [2]time.Time
	for i, member := range []string{"created_at", "expires_at"} {
		var err error
		if times[i], err = time.Parse(time.RFC3339, held.json[member].(string)); err != nil {
			t.Error(err)
		}
	}
	if ttl := times[1].Sub(times[0]); ttl != time.Minute {
		t.Errorf("it is held for %v", ttl)
	}

	url := r.public + reservations + "/" + held.json["id"].(string)
	for range 2 {
		confirmed := post(t, url+"/confirm", "").want(t, 200, "")
		if confirmed.text(t, "state") != `"confirmed"` || confirmed.json["ended_at"] == nil {
			t.Errorf("confirmed: %s", confirmed.raw)
		}
	}
	do(t, request{method: http.MethodDelete, url: url}).want(t, 409, "reservation-confirmed")
	r.wantStock(t, "8")

	url = r.hold(t)
	r.wantStock(t, "6")
	for range 2 {
		cancelled := do(t, request{method: http.MethodDelete, url: url + "?strategy=reserve"}).want(t, 200, "")
		if cancelled.text(t, "state") != `"cancelled"` {
			t.Errorf("cancelled: %s", cancelled.raw)
		}
	}
	post(t, url+"/confirm", "").want(t, 409, "reservation-cancelled")
	r.wantStock(t, "8")
}

func TestAnExpiredReservationOverHTTP(t *testing.T) {
	t.Parallel()
	r, db := newShop(t)
	url := r.hold(t)
	_, err := db.Exec("UPDATE reservation SET expires_at = UTC_TIMESTAMP(6)")
	must.Succeed(t, err)
	if state := get(t, url).want(t, 200, "").text(t, "state"); state != `"expired"` {
		t.Errorf("the state is %s", state)
	}
	post(t, url+"/confirm", "").want(t, 409, "reservation-expired")
	for range 2 {
		late := do(t, request{method: http.MethodDelete, url: url}).want(t, 200, "")
		if late.text(t, "state") != `"expired"` {
			t.Errorf("cancelled late: %s", late.raw)
		}
	}
	eventually(t, "the units are back", func() bool { return get(t, r.public+"/stock/1").text(t, "stock") == "10" })
	for name, want := range map[string]string{
		`stock_reservations_ended_total{outcome="expired"}`:                                   "1",
		"stock_reservation_expiry_lag_seconds_count":                                          "1",
		"stock_reservations_held_units":                                                       "0",
		"stock_reservations_overdue_seconds":                                                  "0",
		`stock_reservation_requests_total{operation="confirm",outcome="reservation-expired"}`: "1",
	} {
		eventually(t, name+" is "+want, func() bool { return metric(t, r, name) == want })
	}
}

func TestAHoldThatIsSentAgainReturnsTheReservation(t *testing.T) {
	t.Parallel()
	r, _ := newShop(t)
	send := func(body string) reply {
		return do(t, request{method: "POST", url: r.public + reservations, body: body, header: key("a")})
	}
	const body = `{"goods_id":1,"count":2,"ttl_ms":60000}`
	first := send(body).want(t, 201, "")
	post(t, r.public+reservations+"/"+first.json["id"].(string)+"/confirm", "").want(t, 200, "")
	again := send(body).want(t, 201, "")
	if again.json["id"] != first.json["id"] || again.text(t, "state") != `"confirmed"` || again.json["remaining"] != nil ||
		first.header.Get("Idempotency-Replayed") != "" || again.header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("first %s, again %s", first.raw, again.raw)
	}
	for _, other := range []string{
		`{"goods_id":1,"count":1,"ttl_ms":60000}`, `{"goods_id":2,"count":2,"ttl_ms":60000}`,
		`{"goods_id":1,"count":2,"ttl_ms":60001}`,
	} {
		send(other).want(t, 422, "idempotency-key-reused")
	}
	r.wantStock(t, "8")
}

func TestAReplicaWithoutServersRefusesRequestsAndIsReady(t *testing.T) {
	t.Parallel()
	r := newReplica(t, options{})
	get(t, r.public+"/readyz").want(t, 200, "")
	get(t, r.public+"/stock/1").want(t, 503, "unavailable")
	post(t, r.public+"/stock/deduct/update?goods_id=1&count=1", "").want(t, 503, "unavailable")
	post(t, r.public+reservations, `{"goods_id":1,"count":1,"ttl_ms":60000}`).want(t, 503, "unavailable")
	get(t, r.public+reservations+"/01936b8a-0000-7000-8000-000000000000").want(t, 503, "unavailable")
}
