package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"stock/internal/must"
)

// steady is six rounds that differ by one percent.
func steady(rate float64) (rates []float64) {
	for _, percent := range []float64{99.5, 100, 100.5, 99.5, 100, 100.5} {
		rates = append(rates, rate*percent/100)
	}
	return rates
}

func verdict(t *testing.T, r *Result, what, wanted string) Verdict {
	t.Helper()
	for _, v := range r.Verdicts() {
		if v.What == what && strings.Contains(v.Wanted, wanted) {
			return v
		}
	}
	t.Fatalf("there is no target of %s with %s", what, wanted)
	return Verdict{}
}

func TestTargetsAreJudgedByTheWholeInterval(t *testing.T) {
	t.Parallel()
	r := &Result{Rates: map[string][]float64{
		noop: steady(10_000), byWrk(noop): steady(12_000),
		"batch": steady(8000), "update": steady(3000), Raw: steady(4500),
		Bare: {12_000, 9000, 12_000, 9000, 12_000, 9000},
	}, ReplicaPeak: 61_000_000, HeapAfterFirst: 5_000_000, HeapAfterLast: 6_000_000, JudgedLater: 1000}
	for _, test := range []struct{ what, wanted, outcome string }{
		{"batch", "noop", "met"},
		{"batch", "update", "not met"}, // 2.67 times as fast
		{"update", "raw", "met"},       // 3000 × (1/10000 + 1/4500) = 0.97
		{"noop", "bare", "undecided"},  // from 0.83 to 1.11
		{"noop", "wrk", "not met"},     // 0.83
		{"redis-script", "noop", "undecided"},
		{"a replica", "60 MB", "not met"},
		{"the lab's memory", "grow", "not met"}, // a kilobyte per request
	} {
		if v := verdict(t, r, test.what, test.wanted); v.Outcome != test.outcome {
			t.Errorf("%s, wanted %s: measured %s, %s, want %s", v.What, v.Wanted, v.Measured, v.Outcome, test.outcome)
		}
	}
	r.Rates["batch"] = []float64{9000}
	if v := verdict(t, r, "batch", "noop"); v.Outcome != "undecided" {
		t.Errorf("a single round is %s, want open: it proves nothing", v.Outcome)
	}
}

func TestMemoryGrowthIsDividedByTheRequestsJudgedLater(t *testing.T) {
	t.Parallel()
	b := newBench(Options{Rounds: 3, Progress: func(int, int, string) {}})
	judged := subject{name: "update", run: func(context.Context, int) (cell, error) {
		b.judged += 1000
		return cell{rate: 100, requests: 1000}, nil
	}}
	reference := subject{name: Raw, run: func(context.Context, int) (cell, error) {
		return cell{rate: 5000, requests: 1000}, nil
	}}
	must.Succeed(t, b.measure(t.Context(), []subject{judged, reference}))
	r := b.result
	if r.JudgedLater != 2000 || len(r.Rates["update"]) != 3 || len(r.Rates[Raw]) != 3 || r.HeapAfterFirst == 0 ||
		r.HeapAfterLast == 0 {
		t.Errorf("got %+v, want 2000 requests judged after the first of three rounds", r)
	}
}

func TestTheTablesNameWhatIsWrongAndShowTheCPUTimeOfEachPart(t *testing.T) {
	t.Parallel()
	r := &Result{
		Rates: map[string][]float64{noop: steady(10_000)},
		Parts: []string{Load, "service", "MySQL"},
		CPU:   map[string]map[string][]float64{noop: {Load: steady(40), "service": steady(30)}},
		Notes: []string{"not measured: the service has no strategy batch"},
		Wrong: []string{"update was found wrong"}, Inconclusive: []string{"raw was found inconclusive"},
	}
	for _, write := range []func(io.Writer) error{r.WriteText, r.WriteMarkdown} {
		var out bytes.Buffer
		must.Succeed(t, write(&out))
		for _, want := range []string{
			`\| load µs +\| service µs +\| MySQL µs +\|\n.*\n\| noop +\| 10000 .*\| 40 +\| 30 +\| +\|\n`,
			`\| batch .*not measured`, `no strategy batch`, `\*\*update was found wrong\*\*\n`, `\*\*raw was found inc`,
		} {
			if !regexp.MustCompile(want).Match(out.Bytes()) {
				t.Errorf("%q does not match\n%s", want, &out)
			}
		}
	}
}

func TestBareHandlerDecodesAndEncodes(t *testing.T) {
	t.Parallel()
	post := func(body string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		request := httptest.NewRequest(http.MethodPost, "/stock/deduct", strings.NewReader(body))
		BareHandler().ServeHTTP(w, request)
		return w
	}
	w := post(`{"strategy":"bare","goods_id":7,"count":2}`)
	var receipt bareReceipt
	err := json.Unmarshal(w.Body.Bytes(), &receipt)
	if err != nil || w.Code != http.StatusOK || receipt.GoodsID != 7 || receipt.Count != 2 {
		t.Errorf("%d %s, %v", w.Code, w.Body, err)
	}
	if w = post(`{`); w.Code != http.StatusBadRequest {
		t.Errorf("invalid JSON is answered %d", w.Code)
	}
}
