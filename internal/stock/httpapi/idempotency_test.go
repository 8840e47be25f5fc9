package httpapi_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"stock/internal/must"
	"stock/internal/stock"
	"stock/internal/stock/catalogue"
)

// keyedDeduction asks for units of item 1 with the strategy update and a key.
func keyedDeduction(r *replica, query, id string) request {
	return request{method: "POST", url: r.public + "/stock/deduct/update?goods_id=1&" + query, header: key(id)}
}

// keyedOrder orders several items with a key.
func keyedOrder(r *replica, strategy, lines, id string) request {
	return request{
		method: "POST", url: r.public + "/stock/orders/" + strategy, body: `{"lines":[` + lines + `]}`, header: key(id),
	}
}

func TestEveryStrategyRefusesAKeyThatItWouldIgnore(t *testing.T) {
	t.Parallel()
	r := newReplica(t, options{}) // without servers
	for _, strategy := range catalogue.Strategies {
		url := r.public + "/stock/deduct/" + strategy.Name + "?goods_id=1&count=1"
		for _, req := range []request{
			{method: "POST", url: url, header: key("k")},
			keyedOrder(r, strategy.Name, `{"goods_id":1,"count":1}`, "k"),
		} {
			got := do(t, req)
			refused := got.slug() == "idempotency-key-unsupported"
			if refused == strategy.Idempotent() || got.status == 200 {
				t.Errorf("%s: %d %s", req.url, got.status, got.raw)
			}
		}
	}
}

func TestStrategiesThatKeepKeysRequireOneIfTheServiceSaysSo(t *testing.T) {
	t.Parallel()
	r := newReplica(t, options{deps: stock.Deps{MySQL: database(t)}, requireKey: true})
	for _, req := range []request{
		keyedDeduction(r, "count=1", "deduction"), keyedOrder(r, "batch", `{"goods_id":1,"count":1}`, "order"),
	} {
		do(t, req).want(t, 200, "")
		req.header = nil
		got := do(t, req).want(t, 400, "malformed")
		if !strings.Contains(string(got.raw), "Idempotency-Key is missing") {
			t.Errorf("%s: got %s", req.url, got.raw)
		}
	}
	const chunked = "Host: a\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
	for want, text := range map[string]string{
		"is named Idempotency_key": "POST /stock/deduct/update?goods_id=1&count=1 HTTP/1.1\r\nHost: a\r\n" +
			"Idempotency_Key: a\r\n\r\n",
		"not a trailer": "POST /stock/deduct/update HTTP/1.1\r\n" + chunked + "18\r\n" + `{"goods_id":1,"count":1}` +
			"\r\n0\r\nIdempotency-Key: a\r\n\r\n",
	} {
		if status, body := sendRaw(t, r.public, text); status != 400 || !strings.Contains(body, want) {
			t.Errorf("got %d %s, want 400 and %s", status, body, want)
		}
	}
	if left := get(t, r.public+"/stock/1").text(t, "stock"); left != "5998" {
		t.Errorf("%s units are left, want 5998", left)
	}
	do(t, request{method: "POST", url: r.public + "/stock/deduct/mutex-in-tx?goods_id=1&count=1"}).want(t, 200, "")
	post(t, r.public+reservations, `{"goods_id":1,"count":1,"ttl_ms":1000}`).want(t, 201, "")
}

func TestACancellationMayBeChunked(t *testing.T) {
	t.Parallel()
	r := newReplica(t, options{deps: stock.Deps{MySQL: database(t)}, strategy: "update"})
	do(t, keyedDeduction(r, "count=3", "k")).want(t, 200, "")
	body := struct{ io.Reader }{strings.NewReader(`{"cancelled":1}`)} // without a length that net/http could tell
	reply, err := http.Post(r.public+"/stock/sales/k/cancel", "application/json", body)
	must.Succeed(t, err)
	reply.Body.Close()
	if left := get(t, r.public+"/stock/1").text(t, "stock"); reply.StatusCode != http.StatusOK || left != "5998" {
		t.Errorf("the status is %d, and %s units are left, want 5998", reply.StatusCode, left)
	}
}
