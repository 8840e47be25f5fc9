package httpapi_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"stock/internal/stock"
	"stock/internal/stock/stocktest"
)

// orderOf returns an order of that many items with the longest ids and counts, indented as by JSON tools.
func orderOf(lines int) string {
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
		order.Lines = append(order.Lines, line{GoodsID: 1<<63 - 1 - int64(i), Count: stock.MaxCount})
	}
	text, err := json.MarshalIndent(order, "", "    ")
	if err != nil {
		panic(err)
	}
	return string(text)
}

const (
	orders   = "/stock/orders"
	twoLines = `"lines":[{"goods_id":1,"count":1},{"goods_id":2,"count":1}]`
)

// The wire contract of orders, one rule per row.
var orderContract = []contractCase{
	{
		name: "strategy in JSON", method: "POST", path: orders,
		body: `{` + twoLines + `,"strategy":"update","store":"mysql","hold_ms":1}`, status: 200,
		reply: `"lines":[{"goods_id":1,"count":1,"remaining":`,
	},
	{
		name: "strategy in the path", method: "POST", path: orders + "/for-update", body: `{` + twoLines + `}`,
		status: 200, reply: `"strategy":"for-update"`,
	},
	{
		name: "under locks, in Redis", method: "POST", path: orders + "/lock-redis-queue",
		body: `{` + twoLines + `,"store":"redis"}`, status: 200, reply: `"store":"redis"`,
	},
	{
		name: "one line", method: "POST", path: orders + "/update",
		body: `{"lines":[{"goods_id":1,"count":1}]}`, status: 200,
	},
	{
		name: "100 lines of the greatest length", method: "POST", path: orders, body: orderOf(100),
		status: 404, slug: "unknown-goods",
	},

	{
		name: "101 lines", method: "POST", path: orders, body: orderOf(101), status: 400, slug: "malformed",
		reply: "the order has 101 lines: it must have 1 to 100",
	},
	{
		name: "no lines", method: "POST", path: orders + "/update", body: `{}`, status: 400, slug: "malformed",
		reply: "the order has 0 lines",
	},
	{
		name: "lines that are null", method: "POST", path: orders + "/update", body: `{"lines":null}`,
		status: 400, slug: "malformed", reply: "the order has 0 lines",
	},
	{
		name: "a line that is null", method: "POST", path: orders + "/update",
		body: `{"lines":[{"goods_id":1,"count":1},null]}`, status: 400, slug: "malformed", reply: `"lines":[1]`,
	},
	{
		name: "no body", method: "POST", path: orders + "/update",
		header: map[string]string{"Content-Type": "application/json"}, status: 400, slug: "malformed",
		reply: "JSON",
	},
	{
		name: "a query", method: "POST", path: orders + "/update?goods_id=1&count=1", status: 400,
		slug: "malformed", reply: "must be sent as JSON",
	},
	{
		name: "count 0", method: "POST", path: orders + "/update",
		body: `{"lines":[{"goods_id":1,"count":1},{"goods_id":2,"count":0}]}`, status: 400, slug: "malformed",
		reply: `"goods_id":2,"lines":[1]`,
	},
	{
		name: "goods_id missing", method: "POST", path: orders + "/update", body: `{"lines":[{"count":1}]}`,
		status: 400, slug: "malformed", reply: `"lines":[0]`,
	},
	{
		name: "too many units of one item", method: "POST", path: orders + "/update",
		body: `{"lines":[{"goods_id":1,"count":1000000},{"goods_id":1,"count":1}]}`, status: 400,
		slug: "malformed", reply: "1000001 units of item 1 in all",
	},
	{
		name: "hold_ms too large", method: "POST", path: orders + "/update",
		body: `{` + twoLines + `,"hold_ms":10001}`, status: 400, slug: "malformed", reply: "hold_ms",
	},
	{
		name: "lines twice", method: "POST", path: orders + "/update", body: `{` + twoLines + `,` + twoLines + `}`,
		status: 400, slug: "malformed", reply: "lines is given more than once",
	},
	{
		name: "count twice in a line", method: "POST", path: orders + "/update",
		body: `{"lines":[{"goods_id":1,"count":1,"count":2}]}`, status: 400, slug: "malformed",
		reply: "count is given more than once",
	},
	{
		name: "member in capitals in a line", method: "POST", path: orders + "/update",
		body: `{"lines":[{"goods_id":1,"Count":1}]}`, status: 400, slug: "malformed",
		reply: `unknown member \"lines.0.Count\"`,
	},
	{
		name: "unknown member in a line", method: "POST", path: orders + "/update",
		body: `{"lines":[{"goods_id":1,"count":1,"price":1}]}`, status: 400, slug: "malformed", reply: "price",
	},
	{
		name: "braces in a value", method: "POST", path: orders, body: `{"strategy":"}{\"",` + twoLines + `}`,
		status: 404, slug: "unknown-strategy",
	},
	{
		name: "a line that is a number", method: "POST", path: orders + "/update", body: `{"lines":[1]}`,
		status: 400, slug: "malformed", reply: "lines",
	},
	{
		name: "two strategies", method: "POST", path: orders + "/update",
		body: `{` + twoLines + `,"strategy":"none"}`, status: 400, slug: "malformed", reply: "the path asks",
	},
	{
		name: "strategy without orders", method: "POST", path: orders + "/none", body: `{` + twoLines + `}`,
		status: 400, slug: "no-orders", reply: "strategy none on store mysql takes no orders; GET /strategies",
	},
	{
		name: "noop", method: "POST", path: orders + "/noop", body: `{` + twoLines + `}`, status: 400,
		slug: "no-orders", reply: "noop",
	},
	{
		name: "unknown strategy", method: "POST", path: orders + "/hope", body: `{` + twoLines + `}`, status: 404,
		slug: "unknown-strategy", reply: "hope",
	},
	{
		name: "store that the strategy does not support", method: "POST", path: orders + "/update",
		body: `{` + twoLines + `,"store":"redis"}`, status: 400, slug: "unsupported-store", reply: "update",
	},
	{
		name: "server not configured", method: "POST", path: orders + "/lock-redlock", body: `{` + twoLines + `}`,
		status: 503, slug: "unavailable", reply: "not configured: redlock",
	},
	{
		name: "sold out", method: "POST", path: orders + "/update",
		body:   `{"lines":[{"goods_id":2,"count":3},{"goods_id":1,"count":1},{"goods_id":2,"count":1}]}`,
		status: 409, slug: "sold-out", reply: `"goods_id":2,"lines":[0,2]`,
	},
	{
		name: "unknown item", method: "POST", path: orders + "/update",
		body: `{"lines":[{"goods_id":77,"count":1},{"goods_id":1,"count":1}]}`, status: 404,
		slug: "unknown-goods", reply: `"goods_id":77,"lines":[0]`,
	},
	{
		name: "body too large", method: "POST", path: orders,
		body: `{"strategy":"` + strings.Repeat("x", 16384) + `"}`, status: 413, slug: "too-large",
		reply: "16384",
	},
	{
		name: "form", method: "POST", path: orders, body: "goods_id=1&count=1",
		header: map[string]string{"Content-Type": "application/x-www-form-urlencoded"}, status: 415,
		slug: "unsupported-media-type", reply: "form",
	},
	{name: "method", method: "GET", path: orders, status: 405, slug: "method-not-allowed", reply: "allows POST"},
	{
		name: "method on a strategy", method: "PUT", path: orders + "/update", status: 405,
		slug: "method-not-allowed", reply: "allows POST",
	},
}

func TestContractOfOrders(t *testing.T) {
	t.Parallel()
	r := newReplica(t, options{deps: stock.Deps{MySQL: database(t), Redis: redisClient(t)}})
	do(t, request{method: "PUT", url: r.admin + "/admin/stock/1", body: `{"stock":6000}`}).want(t, 200, "")
	do(t, request{method: "PUT", url: r.admin + "/admin/stock/2", body: `{"stock":3}`}).want(t, 200, "")
	for _, test := range orderContract {
		t.Run(test.name, func(t *testing.T) { test.check(t, r) })
	}
	// Four orders were carried out: three in MySQL, two of which had item 2.
	for path, want := range map[string]string{"/stock/1": "5997", "/stock/2": "1", "/stock/2?store=redis": "2"} {
		if left := get(t, r.public+path).text(t, "stock"); left != want {
			t.Errorf("%s: %s are left, want %s", path, left, want)
		}
	}
}

func TestAnOrderReceiptHasEveryMember(t *testing.T) {
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

// The first order stops between its two items.
func TestAnOrderLocksItsItemsInAscendingOrder(t *testing.T) {
	t.Parallel()
	r := newReplica(t, options{deps: stock.Deps{MySQL: database(t)}})
	do(t, request{method: "PUT", url: r.admin + "/admin/stock/2", body: `{"stock":10}`}).want(t, 200, "")
	order := park(t, r, request{
		method: "POST", url: r.public + "/stock/orders/update",
		body: `{"lines":[{"goods_id":2,"count":1},{"goods_id":1,"count":1}]}`,
	}, stocktest.AfterWrite)
	// The last item is not locked yet.
	post(t, r.public+"/stock/deduct/update?goods_id=2&count=1", "").want(t, 200, "")
	order.resume().want(t, 200, "")
	if left := get(t, r.public+"/stock/2").text(t, "stock"); left != "8" {
		t.Errorf("%s are left, want 8", left)
	}
}

func TestStrategiesListTheStoresOfOrders(t *testing.T) {
	t.Parallel()
	r := newReplica(t, options{deps: stock.Deps{MySQL: database(t), Redis: redisClient(t)}})
	want := map[string]string{
		"none": "[]", "update": "[mysql]", "batch": "[mysql]",
		"lock-redis-lua": "[mysql redis]", "lock-etcd": "[]", // there is no etcd
	}
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
