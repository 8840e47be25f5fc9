package httpapi_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"stock/internal/stock"
)

// orderOf is an order of that many goods with the longest ids and counts, indented as JSON tools do it.
func orderOf(t testing.TB, lines int) string {
	t.Helper()
	type line struct {
		GoodsID int64 `json:"goods_id"`
		Count   int64 `json:"count"`
	}
	var order struct {
		Lines    []line `json:"lines"`
		Strategy string `json:"strategy"`
	}
	order.Strategy = "update"
	for i := range lines {
		order.Lines = append(order.Lines, line{1<<63 - 1 - int64(i), stock.MaxCount})
	}
	text, err := json.MarshalIndent(order, "", "    ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The wire contract of orders of several goods, one row a rule. Every reply is also checked against openapi.json.
func TestContractOfOrders(t *testing.T) {
	t.Parallel()
	r := newReplica(t, options{deps: stock.Deps{MySQL: database(t), Redis: redisClient(t)}, pauses: true})
	do(t, request{method: "PUT", url: r.admin + "/admin/stock/1", body: `{"stock":6000}`}).want(t, 200, "")
	do(t, request{method: "PUT", url: r.admin + "/admin/stock/2", body: `{"stock":3}`}).want(t, 200, "")

	const orders = "/stock/orders"
	const lines = `"lines":[{"goods_id":1,"count":1},{"goods_id":2,"count":1}]`
	for _, test := range []struct {
		name, method, path, body string
		header                   map[string]string
		status                   int
		slug                     string
		reply                    string // a part of it
	}{
		{"strategy in JSON", "POST", orders, `{` + lines + `,"strategy":"update","store":"mysql","hold_ms":1}`, nil, 200, "", `"lines":[{"goods_id":1,"count":1,"remaining":`},
		{"strategy in the path", "POST", orders + "/for-update", `{` + lines + `}`, nil, 200, "", `"strategy":"for-update"`},
		{"under locks, in Redis", "POST", orders + "/lock-redis-queue", `{` + lines + `,"store":"redis"}`, nil, 200, "", `"store":"redis"`},
		{"one line", "POST", orders + "/update", `{"lines":[{"goods_id":1,"count":1}]}`, nil, 200, "", ""},
		{"100 lines, as long as they can be", "POST", orders, orderOf(t, 100), nil, 404, "unknown-goods", ""},

		{"101 lines", "POST", orders, orderOf(t, 101), nil, 400, "malformed", "the order has 101 lines: it must have 1 to 100"},
		{"no lines", "POST", orders + "/update", `{}`, nil, 400, "malformed", "the order has 0 lines"},
		{"lines that are null", "POST", orders + "/update", `{"lines":null}`, nil, 400, "malformed", "the order has 0 lines"},
		{"a line that is null", "POST", orders + "/update", `{"lines":[{"goods_id":1,"count":1},null]}`, nil, 400, "malformed", `"lines":[1]`},
		{"no body", "POST", orders + "/update", "", map[string]string{"Content-Type": "application/json"}, 400, "malformed", "JSON"},
		{"a query", "POST", orders + "/update?goods_id=1&count=1", "", nil, 400, "malformed", "must be sent as JSON"},
		{"count 0", "POST", orders + "/update", `{"lines":[{"goods_id":1,"count":1},{"goods_id":2,"count":0}]}`, nil, 400, "malformed", `"goods_id":2,"lines":[1]`},
		{"goods_id missing", "POST", orders + "/update", `{"lines":[{"count":1}]}`, nil, 400, "malformed", `"lines":[0]`},
		{"too much of one goods in all", "POST", orders + "/update", `{"lines":[{"goods_id":1,"count":1000000},{"goods_id":1,"count":1}]}`, nil, 400, "malformed", "1000001 units of goods 1 in all"},
		{"hold_ms too large", "POST", orders + "/update", `{` + lines + `,"hold_ms":10001}`, nil, 400, "malformed", "hold_ms"},
		{"lines twice", "POST", orders + "/update", `{` + lines + `,` + lines + `}`, nil, 400, "malformed", "lines is given more than once"},
		{"count twice in a line", "POST", orders + "/update", `{"lines":[{"goods_id":1,"count":1,"count":2}]}`, nil, 400, "malformed", "count is given more than once"},
		{"member in capitals in a line", "POST", orders + "/update", `{"lines":[{"goods_id":1,"Count":1}]}`, nil, 400, "malformed", `unknown member \"lines.0.Count\"`},
		{"unknown member in a line", "POST", orders + "/update", `{"lines":[{"goods_id":1,"count":1,"price":1}]}`, nil, 400, "malformed", "price"},
		{"braces in a value", "POST", orders, `{"strategy":"}{\"",` + lines + `}`, nil, 404, "unknown-strategy", ""},
		{"a line that is a number", "POST", orders + "/update", `{"lines":[1]}`, nil, 400, "malformed", "lines"},
		{"two strategies", "POST", orders + "/update", `{` + lines + `,"strategy":"none"}`, nil, 400, "malformed", "the path asks"},
		{"unknown pause point", "POST", orders + "/update", `{` + lines + `}`, map[string]string{"X-Pause": "nowhere"}, 400, "malformed", "nowhere"},
		{"key that would be ignored", "POST", orders + "/update", `{` + lines + `}`, map[string]string{"Idempotency-Key": "k"}, 400, "idempotency-key-unsupported", ""},

		{"strategy without orders", "POST", orders + "/none", `{` + lines + `}`, nil, 400, "no-orders", "strategy none on store mysql takes no orders; GET /strategies"},
		{"the baseline", "POST", orders + "/noop", `{` + lines + `}`, nil, 400, "no-orders", "noop"},
		{"unknown strategy", "POST", orders + "/hope", `{` + lines + `}`, nil, 404, "unknown-strategy", "hope"},
		{"store that the strategy lacks", "POST", orders + "/update", `{` + lines + `,"store":"redis"}`, nil, 400, "unsupported-store", "update"},
		{"server not configured", "POST", orders + "/lock-redlock", `{` + lines + `}`, nil, 503, "unavailable", "not configured: redlock"},
		{"sold out", "POST", orders + "/update", `{"lines":[{"goods_id":2,"count":3},{"goods_id":1,"count":1},{"goods_id":2,"count":1}]}`, nil, 409, "sold-out", `"goods_id":2,"lines":[0,2]`},
		{"unknown goods", "POST", orders + "/update", `{"lines":[{"goods_id":77,"count":1},{"goods_id":1,"count":1}]}`, nil, 404, "unknown-goods", `"goods_id":77,"lines":[0]`},
		{"body too large", "POST", orders, `{"strategy":"` + strings.Repeat("x", 16384) + `"}`, nil, 413, "too-large", "16384"},
		{"form", "POST", orders, "goods_id=1&count=1", map[string]string{"Content-Type": "application/x-www-form-urlencoded"}, 415, "unsupported-media-type", "form"},
		{"method", "GET", orders, "", nil, 405, "method-not-allowed", "allows POST"},
		{"method on a strategy", "PUT", orders + "/update", "", nil, 405, "method-not-allowed", "allows POST"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := do(t, request{test.method, r.public + test.path, test.body, test.header})
			got.want(t, test.status, test.slug)
			if !strings.Contains(string(got.raw), test.reply) {
				t.Errorf("got %s, want something with %s", got.raw, test.reply)
			}
		})
	}
	// Four orders were carried out, three of them in MySQL, and two of those with goods 2.
	for path, want := range map[string]string{"/stock/1": "5997", "/stock/2": "1", "/stock/2?store=redis": "2"} {
		if left := get(t, r.public+path).text(t, "stock"); left != want {
			t.Errorf("%s: %s are left, want %s", path, left, want)
		}
	}
}

func TestAnOrdersConfirmationTellsAll(t *testing.T) {
	t.Parallel()
	r := newReplica(t, options{deps: stock.Deps{MySQL: database(t)}})
	do(t, request{method: "PUT", url: r.admin + "/admin/stock/2", body: `{"stock":10}`}).want(t, 200, "")
	got := do(t, request{
		method: "POST", url: r.public + "/stock/orders/update",
		body:   `{"lines":[{"goods_id":2,"count":3},{"goods_id":1,"count":7},{"goods_id":2,"count":1}]}`,
		header: map[string]string{"X-Request-Id": "order-1"},
	}).want(t, 200, "")
	for member, want := range map[string]string{
		"lines":    `[{"count":7,"goods_id":1,"remaining":5993,"token":0},{"count":4,"goods_id":2,"remaining":6,"token":0}]`,
		"strategy": `"update"`, "store": `"mysql"`, "replica": `"a"`, "request_id": `"order-1"`, "attempts": "1",
	} {
		if text := got.text(t, member); text != want {
			t.Errorf("%s is %s, want %s", member, text, want)
		}
	}
	for name, want := range map[string]string{"X-Request-Id": "order-1", "X-Replica": "a", "X-Strategy": "update"} {
		if value := got.header.Get(name); value != want {
			t.Errorf("%s is %q, want %q", name, value, want)
		}
	}
}

// A lab stops the first order between its two goods.
func TestAnOrderIsParkedBehindItsFirstLock(t *testing.T) {
	t.Parallel()
	r := newReplica(t, options{deps: stock.Deps{MySQL: database(t)}, pauses: true})
	do(t, request{method: "PUT", url: r.admin + "/admin/stock/2", body: `{"stock":10}`}).want(t, 200, "")
	parked := park(t, r, request{
		method: "POST", url: r.public + "/stock/orders/update", body: `{"lines":[{"goods_id":2,"count":1},{"goods_id":1,"count":1}]}`,
		header: map[string]string{"X-Request-Id": "parked", "X-Pause": "after-lock"},
	})
	if list := get(t, r.admin+"/admin/pauses"); !strings.Contains(string(list.raw), `"point":"after-lock","goods_id":1`) {
		t.Errorf("parked is %s", list.raw)
	}
	// The last goods is free meanwhile.
	post(t, r.public+"/stock/deduct/update?goods_id=2&count=1", "").want(t, 200, "")
	do(t, request{method: "DELETE", url: r.admin + "/admin/pauses/parked"}).want(t, 200, "")
	(<-parked).want(t, 200, "")
	if left := get(t, r.public+"/stock/2").text(t, "stock"); left != "8" {
		t.Errorf("%s are left, want 8", left)
	}
}

func TestStrategiesTellWhereTheyTakeOrders(t *testing.T) {
	t.Parallel()
	r := newReplica(t, options{deps: stock.Deps{MySQL: database(t), Redis: redisClient(t)}})
	want := map[string]string{"none": "[]", "update": "[mysql]", "ledger": "[mysql]", "batch": "[mysql]", "batch-ledger": "[mysql]", "lock-redis-lua": "[mysql redis]", "lock-etcd": "[]"} // no etcd here
	for _, row := range get(t, r.public+"/strategies").json["strategies"].([]any) {
		row := row.(map[string]any)
		if orders, asked := want[row["name"].(string)]; asked && fmt.Sprint(row["orders"]) != orders {
			t.Errorf("%s takes orders on %v, want %s", row["name"], row["orders"], orders)
		}
	}
}

func TestMetricsCountOrdersAsTheyCountDeductions(t *testing.T) {
	t.Parallel()
	r := newReplica(t, options{deps: stock.Deps{MySQL: database(t)}})
	for _, count := range []int{1, 2, 6000} {
		post(t, r.public+"/stock/orders/update", `{"lines":[{"goods_id":1,"count":`+strconv.Itoa(count)+`}]}`)
	}
	for sample, want := range map[string]string{
		`stock_deductions_total{outcome="done",store="mysql",strategy="update"}`:     "2",
		`stock_deductions_total{outcome="sold-out",store="mysql",strategy="update"}`: "1",
		`stock_deduction_duration_seconds_count{store="mysql",strategy="update"}`:    "3",
		`stock_lock_hold_seconds_count{store="mysql",strategy="update"}`:             "2",
	} {
		if got := metric(t, r, sample); got != want {
			t.Errorf("%s is %s, want %s", sample, got, want)
		}
	}
}
