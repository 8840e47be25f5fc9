package httpapi_test

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"stock/internal/must"
	"stock/internal/stock"
	"stock/internal/stock/stocktest"
)

// metric returns the value of a sample of /metrics, or an empty string if there is none.
func metric(t testing.TB, r *replica, sample string) string {
	t.Helper()
	got, err := try(context.WithoutCancel(t.Context()), request{method: "GET", url: r.admin + "/metrics"})
	must.Succeed(t, err)
	for line := range strings.Lines(string(got.raw)) {
		if value, ok := strings.CutPrefix(line, sample+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func wantMetrics(t testing.TB, r *replica, samples map[string]string) {
	t.Helper()
	for sample, want := range samples {
		if got := metric(t, r, sample); got != want {
			t.Errorf("%s is %q, want %q", sample, got, want)
		}
	}
}

func TestMetricsCountDeductionsByOutcome(t *testing.T) {
	t.Parallel()
	r := newReplica(t, options{deps: stock.Deps{MySQL: database(t)}})
	for range 2 {
		post(t, r.public+"/stock/deduct/update?goods_id=1&count=1", "").want(t, 200, "")
		do(t, keyedDeduction(r, "count=1", "k")).want(t, 200, "")
	}
	post(t, r.public+"/stock/orders/update", `{"lines":[{"goods_id":1,"count":1}]}`).want(t, 200, "")
	post(t, r.public+"/stock/deduct/update?goods_id=1&count=9999", "").want(t, 409, "sold-out")
	post(t, r.public+"/stock/deduct/update?goods_id=9&count=1", "").want(t, 404, "unknown-goods")
	post(t, r.public+"/stock/deduct/update?goods_id=0&count=1", "").want(t, 400, "malformed")
	wantMetrics(t, r, map[string]string{
		`stock_deductions_total{outcome="done",store="mysql",strategy="update"}`:          "4",
		`stock_deductions_total{outcome="replayed",store="mysql",strategy="update"}`:      "1",
		`stock_deductions_total{outcome="sold-out",store="mysql",strategy="update"}`:      "1",
		`stock_deductions_total{outcome="unknown-goods",store="mysql",strategy="update"}`: "1",
		`stock_deductions_total{outcome="busy",store="mysql",strategy="update"}`:          "0",
		`stock_deductions_total{outcome="unavailable",store="mysql",strategy="update"}`:   "0",
		`stock_deductions_total{outcome="malformed",store="mysql",strategy="update"}`:     "",
		`stock_deduction_duration_seconds_count{store="mysql",strategy="update"}`:         "7",
		`stock_lock_wait_seconds_count{store="mysql",strategy="update"}`:                  "4",
		`stock_lock_hold_seconds_count{store="mysql",strategy="update"}`:                  "4",
		`stock_retries_total{store="mysql",strategy="update"}`:                            "0",
		`stock_http_problems_total{type="malformed"}`:                                     "1",
		`stock_http_problems_total{type="sold-out"}`:                                      "1",
	})
}

// The longest waits are those of refused requests. The histogram must have them.
func TestMetricsCountTheWaitsOfBusyRequests(t *testing.T) {
	t.Parallel()
	r := newReplica(t, options{deps: stock.Deps{MySQL: database(t), LockWait: 50 * time.Millisecond}})
	holder := parkHolder(t, r)
	post(t, r.public+"/stock/deduct/mutex?goods_id=1&count=1", "").want(t, 503, "busy")
	wantMetrics(t, r, map[string]string{
		`stock_lock_wait_seconds_count{store="mysql",strategy="mutex"}`:                   "1",
		`stock_lock_wait_seconds_bucket{store="mysql",strategy="mutex",le="0.025"}`:       "0",
		`stock_lock_hold_seconds_count{store="mysql",strategy="mutex"}`:                   "0",
		`stock_lock_wait_seconds_bucket{store="mysql",strategy="mutex",le="30"}`:          "1",
		`stock_deductions_total{outcome="busy",store="mysql",strategy="mutex"}`:           "1",
		`stock_deduction_duration_seconds_bucket{store="mysql",strategy="mutex",le="15"}`: "1",
	})
	holder.resume().want(t, 200, "")
}

func TestReadyzAsksOnAConnectionOfItsOwn(t *testing.T) {
	t.Parallel()
	dsn := shared.Database(t)
	db := migrated(t, stocktest.MySQL(t, dsn))
	r := newReplica(t, options{deps: stock.Deps{MySQL: db, MySQLHealth: stocktest.MySQL(t, dsn)}})
	db.SetMaxOpenConns(1)
	if _, err := db.Conn(t.Context()); err != nil { // the only one
		t.Fatal(err)
	}
	got := get(t, r.public+"/readyz").want(t, 200, "")
	if got.text(t, "checks") != `{"mysql":{"status":"up"}}` || got.text(t, "status") != `"ready"` {
		t.Errorf("while the pool is full: %s", got.raw)
	}
}

func TestTheDocsLoadNothingFromOtherServersAndAreShownInNoFrame(t *testing.T) {
	t.Parallel()
	r := newReplica(t, options{})
	page := get(t, r.public+"/docs").want(t, 200, "")
	policy := page.header.Get("Content-Security-Policy")
	if !strings.HasPrefix(policy, "default-src 'self';") || strings.Contains(policy, "http") ||
		!strings.HasSuffix(policy, "; frame-ancestors 'none'") {
		t.Errorf("the policy is %q", policy)
	}
	assets := regexp.MustCompile(`(?:src|href)="([^"]*)"`).FindAllStringSubmatch(string(page.raw), -1)
	if len(assets) < 3 {
		t.Fatalf("found only %v", assets)
	}
	for _, asset := range assets {
		if !strings.HasPrefix(asset[1], "/docs/") {
			t.Errorf("the page loads %s", asset[1])
			continue
		}
		// Both ways: the client accepts gzip unless told otherwise.
		for _, encoding := range []string{"", "identity"} {
			got, err := try(t.Context(), request{
				method: "GET", url: r.public + asset[1], header: map[string]string{"Accept-Encoding": encoding},
			})
			if err != nil || got.status != 200 || len(got.raw) == 0 {
				t.Errorf("%s (%s): %d, %v", asset[1], encoding, got.status, err)
			}
			if kind := got.header.Get("Content-Type"); strings.HasPrefix(kind, "application/json") || kind == "" {
				t.Errorf("%s has type %q", asset[1], kind)
			}
		}
	}
}

func TestAProfileThatCannotBeTakenIsAnsweredWithAProblem(t *testing.T) {
	t.Parallel()
	r := newReplica(t, options{})
	taken, err := try(t.Context(), request{method: "GET", url: r.admin + "/debug/pprof/goroutine?debug=1"})
	if err != nil || taken.status != 200 {
		t.Errorf("a profile of goroutines: %d, %v", taken.status, err)
	}
	for _, kind := range []string{"profile", "trace"} {
		url := r.admin + "/debug/pprof/" + kind + "?seconds="
		ctx, end := context.WithCancel(t.Context())
		go func() {
			for ctx.Err() == nil { // the other one may be the first
				_, _ = try(ctx, request{method: "GET", url: url + "60"})
			}
		}()
		eventually(t, "a second "+kind+" is refused", func() bool {
			got, err := try(t.Context(), request{method: "GET", url: url + "1"})
			must.Succeed(t, err)
			return got.status == 503 && got.slug() == "busy" && got.header.Get("Content-Type") == "application/problem+json"
		})
		end()
	}
	got, err := try(t.Context(), request{method: "GET", url: r.admin + "/debug/pprof/heap?seconds=x"})
	if err != nil || got.status != 400 || got.slug() != "malformed" {
		t.Errorf("a heap profile of x seconds: %d %s, %v", got.status, got.raw, err)
	}
}
