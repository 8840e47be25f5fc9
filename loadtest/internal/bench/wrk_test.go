package bench

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"stock/internal/must"
	"stock/loadtest/internal/scenario"
)

// wrkOn returns a bench of a service, for two users and as short cells as wrk can have.
func wrkOn(t *testing.T, service http.HandlerFunc) (b *bench, wrk string) {
	t.Helper()
	wrk, err := exec.LookPath("wrk")
	if err != nil {
		t.Skip("wrk is not installed")
	}
	server := httptest.NewServer(service)
	t.Cleanup(server.Close)
	return newBench(Options{
		Target: scenario.Target{Service: scenario.Service{URL: server.URL, Admin: server.URL, Client: server.Client()}},
		Users:  2, Time: time.Millisecond, Dir: t.TempDir(),
	}), wrk
}

func TestWrkSendsOneDeductionAndCountsTheAnswers(t *testing.T) {
	t.Parallel()
	var answers atomic.Int64
	var connections sync.Map
	b, wrk := wrkOn(t, func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got := fmt.Sprint(r.Method, r.URL.Path, r.Header.Get("Content-Type"), string(body))
		switch got {
		case `POST/stock/deductapplication/json{"strategy":"noop","goods_id":1,"count":1}`:
			answers.Add(1)
			connections.Store(r.RemoteAddr, nil)
		case fmt.Sprintf(`PUT/admin/stock/1application/json{"stock":%d}`, ample):
		default:
			t.Errorf("the service got %s", got)
		}
	})
	c, err := b.wrk(t.Context(), wrk, noop)
	must.Succeed(t, err)
	// Each of two users has a connection in the warm-up, and another one afterwards.
	if n := len(maps.Collect(connections.Range)); n != 4 {
		t.Errorf("wrk had %d connections, want 4", n)
	}
	// wrk ran for at least a second, and did not wait for its last requests.
	if most := float64(answers.Load()); c.rate <= 0 || c.rate > most {
		t.Errorf("wrk had %v answers per second, want some, and at most %v", c.rate, most)
	}
	if c.load <= 0 {
		t.Errorf("wrk used %v of CPU, want some", c.load)
	}
}

func TestARefusalByWrkIsAnError(t *testing.T) {
	t.Parallel()
	b, wrk := wrkOn(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	if c, err := b.wrk(t.Context(), wrk, noop); err == nil || !strings.Contains(err.Error(), "with an error status") {
		t.Errorf("%v per second, %v, want an error", c.rate, err)
	}
}

func TestCountsOfWrk(t *testing.T) {
	t.Parallel()
	const text = "Running 2s test @ http://127.0.0.1:8000\nRequests/sec: 1.00\n"
	count, err := readWrk([]byte(text + `{"requests":3000,"microseconds":1500000,"refused":0,"broken":0}` + "\n"))
	if err != nil || count.rate() != 2000 {
		t.Errorf("%v per second, %v, want 2000", count.rate(), err)
	}
	for _, bad := range []string{
		"", text, text + `{"requests":0,"microseconds":1500000}`,
		text + `{"requests":3000,"microseconds":1500000,"refused":1}`,
		text + `{"requests":3000,"microseconds":1500000,"broken":1}`,
	} {
		if count, err := readWrk([]byte(bad)); err == nil {
			t.Errorf("%q is read as %+v, want an error", bad, count)
		}
	}
}

// It is not parallel because it changes where programs are searched.
func TestWithoutWrkANoteSaysHowToInstallIt(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	b := newBench(Options{})
	if got := b.addWrk([]subject{{name: noop}}); len(got) != 1 {
		t.Errorf("%d subjects, want that of noop alone", len(got))
	}
	if notes := strings.Join(b.result.Notes, "\n"); !strings.Contains(notes, `"apt-get install wrk"`) {
		t.Errorf("the notes are %q", notes)
	}
}

func TestSharesAreOfNoopByTheSameDriverAndAsManyUsers(t *testing.T) {
	t.Parallel()
	r := &Result{Rates: map[string][]float64{
		noop: steady(10_000), "batch": steady(6000),
		byWrk(noop): steady(20_000), byWrk("batch"): steady(14_000), keyed("batch"): steady(4500),
		at(noop, manyUsers): steady(5000), at("batch", manyUsers): steady(4000),
	}}
	for subject, want := range map[string]string{
		"batch": "0.60", byWrk("batch"): "0.70", at("batch", manyUsers): "0.80", at(noop, manyUsers): "1.00",
	} {
		if got := r.Share(subject); got != want {
			t.Errorf("the share of %s is %s, want %s", subject, got, want)
		}
	}
	if got := r.WithoutKey(keyed("batch")) + r.WithoutKey("batch"); got != "0.75 (0.75 to 0.75)" {
		t.Errorf("with keys, batch has %q of its rate, want 0.75", got)
	}
}
