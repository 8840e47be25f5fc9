package httpapi_test

import (
	"net/http"
	"testing"

	"stock/internal/must"
	"stock/internal/stock"
)

const reservations = "/stock/reservations"

func TestAnExpiredReservationOverHTTP(t *testing.T) {
	t.Parallel()
	db := database(t)
	r := newReplica(t, options{deps: stock.Deps{MySQL: db}, sweeps: true, strategy: "update"})
	held := post(t, r.public+reservations, `{"goods_id":1,"count":2,"ttl_ms":60000}`).want(t, 201, "")
	url := r.public + reservations + "/" + held.json["id"].(string)
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
	eventually(t, "the units are back", func() bool { return get(t, r.public+"/stock/1").text(t, "stock") == "6000" })
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

func TestAReplicaWithoutServersRefusesRequestsAndIsReady(t *testing.T) {
	t.Parallel()
	r := newReplica(t, options{})
	get(t, r.public+"/readyz").want(t, 200, "")
	get(t, r.public+"/stock/1").want(t, 503, "unavailable")
	post(t, r.public+"/stock/deduct/update?goods_id=1&count=1", "").want(t, 503, "unavailable")
	post(t, r.public+reservations, `{"goods_id":1,"count":1,"ttl_ms":60000}`).want(t, 503, "unavailable")
	get(t, r.public+reservations+"/01936b8a-0000-7000-8000-000000000000").want(t, 503, "unavailable")
}
