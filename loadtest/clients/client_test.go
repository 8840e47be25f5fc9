package main

import (
	"bytes"
	"context"
	"database/sql"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"stock/internal/must"
	"stock/internal/servers/serverstest"
	"stock/internal/tcpproxy"
	"stock/loadtest/internal/topology"
)

var salesEach = flag.Int("sales", 36, "how many sales each client makes while answers are lost; 2000 take a minute")

// program is the command of a client without its arguments.
type program []string

// eachClient runs a test with every client, or skips it if a program that the client needs is not installed.
func eachClient(t *testing.T, test func(t *testing.T, number int, client program)) {
	compiled := filepath.Join(t.TempDir(), "client")
	for i, c := range []struct {
		name   string
		check  []string // succeeds if the client can run; for Go, it compiles the client
		client program
	}{
		{"curl", []string{"curl", "--version"}, program{"sh", "client.sh"}},
		{"Go", []string{"env", "CGO_ENABLED=0", "go", "build", "-trimpath", "-o", compiled, "client.go"}, program{compiled}},
		{"Python", []string{"python3", "--version"}, program{"python3", "client.py"}},
		{"Java", []string{"java", "--list-modules"}, program{"java", "Client.java"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.name == "Java" {
				serverstest.NeedAll(t)
			}
			serverstest.NeedCommand(t, c.check...)
			test(t, i, c.client)
		})
	}
}

// sell runs a client, and returns the keys of its sales with the outcome of each.
func (p program) sell(t *testing.T, url string, item, sales int) (keys, outcomes []string) {
	t.Helper()
	args := append(slices.Clone(p[1:]), url, strconv.Itoa(item), strconv.Itoa(sales))
	cmd := exec.CommandContext(t.Context(), p[0], args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || stderr.Len() > 0 {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	for line := range strings.Lines(string(out)) {
		key, outcome, _ := strings.Cut(strings.TrimSpace(line), " ")
		keys, outcomes = append(keys, key), append(outcomes, outcome)
	}
	if distinct := slices.Compact(slices.Sorted(slices.Values(keys))); len(distinct) != sales {
		t.Fatalf("%d sales have %d keys:\n%s", sales, len(distinct), out)
	}
	return keys, outcomes
}

func TestEachKeySellsOnceThoughEveryThirdAnswerIsLost(t *testing.T) {
	serverstest.Long(t)
	t.Parallel()
	lab, err := topology.Start(t.Context(), topology.Options{Relaxed: true})
	must.Succeed(t, err)
	t.Cleanup(func() {
		if err := lab.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	t.Run("clients", func(t *testing.T) {
		eachClient(t, func(t *testing.T, number int, client program) {
			front := tcpproxy.New(t, strings.TrimPrefix(lab.URL, "http://"))
			lost := loseEveryThird(t, front)
			plenty, scarce := 100+number, 200+number
			setStock(t, lab, plenty, *salesEach+5)
			setStock(t, lab, scarce, 1)
			started := time.Now()
			keys, outcomes := client.sell(t, "http://"+front.Addr(), plenty, *salesEach)
			t.Logf("%d sales and %d lost answers in %v", *salesEach, lost(), time.Since(started).Round(time.Millisecond))
			if lost() < *salesEach/3 {
				t.Errorf("%d answers were lost, want at least a third of %d", lost(), *salesEach)
			}
			if !slices.Equal(outcomes, slices.Repeat([]string{"sold"}, *salesEach)) {
				t.Errorf("the outcomes are %q, want that all are sold", outcomes)
			}
			for i, key := range keys {
				wantSold(t, lab.Replicas[i%2].URL, key, plenty)
			}
			wantStock(t, lab, plenty, 5)
			_, outcomes = client.sell(t, "http://"+front.Addr(), scarce, 3)
			if want := []string{"sold", "refused 409", "refused 409"}; !slices.Equal(outcomes, want) {
				t.Errorf("the outcomes of three sales of one unit are %q, want %q", outcomes, want)
			}
			wantStock(t, lab, scarce, 0)
		})
	})
	for _, r := range lab.Replicas {
		metrics := do(t, http.MethodGet, r.AdminURL+"/metrics", "", "")
		if !regexp.MustCompile(`(?m)^stock_deductions_total{outcome="done",.*} [1-9]`).MatchString(metrics.text) {
			t.Errorf("%s has sold nothing", r.Name)
		}
	}
}

// loseEveryThird cuts the connection of every third request once its answer has come, and counts these answers.
func loseEveryThird(t *testing.T, proxy *tcpproxy.Proxy) (lost func() int) {
	var cut atomic.Int64
	requests := 0 // guarded by the proxy, which matches one message at a time
	third := func(m tcpproxy.Message) bool {
		if bytes.HasPrefix(m.Data, []byte("POST ")) {
			requests++
			return requests%3 == 0
		}
		return false
	}
	caught := proxy.Catch(third)
	go func() {
		for {
			select {
			case <-caught.Arrived():
			case <-t.Context().Done():
				return
			}
			next := proxy.Catch(third) // before the client can send anything else
			cut.Add(1)
			caught.Cut(tcpproxy.BeforeReply)
			caught = next
		}
	}()
	return func() int { return int(cut.Load()) }
}

// wantSold sends a sale once more, and wants the answer of one that was carried out before.
func wantSold(t *testing.T, url, key string, item int) {
	t.Helper()
	url = fmt.Sprintf("%s/stock/deduct?goods_id=%d&count=1", url, item)
	got := do(t, http.MethodPost, url, key, "")
	if got.status != http.StatusOK || got.header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("key %s was not sold: status %d, %s", key, got.status, got.text)
	}
}

func setStock(t *testing.T, lab *topology.Topology, item, units int) {
	t.Helper()
	url := fmt.Sprintf("%s/admin/stock/%d", lab.Replicas[0].AdminURL, item)
	if got := do(t, http.MethodPut, url, "", fmt.Sprintf(`{"stock":%d}`, units)); got.status != http.StatusOK {
		t.Fatalf("status %d, %s", got.status, got.text)
	}
}

// wantStock reads the stock in MySQL, so that the service is not its own witness.
func wantStock(t *testing.T, lab *topology.Topology, item, want int) {
	t.Helper()
	db, err := sql.Open("mysql", lab.MySQLDSN)
	must.Succeed(t, err)
	defer db.Close()
	var units int
	err = db.QueryRowContext(t.Context(), "SELECT stock FROM good_stock WHERE goods_id = ?", item).Scan(&units)
	if err != nil || units != want {
		t.Errorf("item %d has %d units, %v, want %d", item, units, err, want)
	}
}

type answer struct {
	status int
	header http.Header
	text   string
}

func do(t *testing.T, method, url, key, json string) answer {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(json))
	must.Succeed(t, err)
	if key != "" {
		request.Header.Set("Idempotency-Key", key)
	}
	if json != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	reply, err := http.DefaultClient.Do(request)
	must.Succeed(t, err)
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	must.Succeed(t, err)
	return answer{reply.StatusCode, reply.Header, string(text)}
}

// Replies are statuses, with Retry-After behind a plus; D stands for a date, and 0 for a connection that breaks.
func TestClientsSendAgainWhatMayBeSentAgain(t *testing.T) {
	t.Parallel()
	sales := []struct{ replies, outcome string }{
		{"201", "sold"},
		{"0 200", "sold"},
		{"500 502 504 200", "sold"},
		{"503+1 200", "sold"},
		{"409+1 200", "sold"}, // in progress
		{"409+0 200", "sold"},
		{"503+D 200", "sold"},
		{"500 409", "refused 409"}, // the answer of the key
		{"500 404", "unknown"},
		{"502+1 422", "unknown"},
		{"409+1 400", "unknown"},
		{"0 503 400", "unknown"},
		{"503 404", "refused 404"},
		{"400", "refused 400"},
		{"404", "refused 404"},
		{"422", "refused 422"},
		{"501", "refused 501"},
		{"503+100", "unknown"}, // the deadline is earlier
	}
	eachClient(t, func(t *testing.T, _ int, client program) {
		var mu sync.Mutex
		sent := map[string][]time.Time{} // by key
		var keys []string
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			key := r.Header.Get("Idempotency-Key")
			if sent[key] == nil {
				keys = append(keys, key)
			}
			replies := strings.Fields(sales[(len(keys)-1)%len(sales)].replies)
			reply := replies[len(sent[key])%len(replies)]
			sent[key] = append(sent[key], time.Now())
			status, after, ok := strings.Cut(reply, "+")
			if after == "D" {
				after = time.Now().UTC().Format(http.TimeFormat)
			}
			if ok {
				w.Header().Set("Retry-After", after)
			}
			code, _ := strconv.Atoi(status)
			if code == 0 {
				panic(http.ErrAbortHandler)
			}
			w.WriteHeader(code)
		}))
		defer server.Close()
		told, outcomes := client.sell(t, server.URL, 1, len(sales))
		if !slices.Equal(told, keys) {
			t.Fatalf("the keys are %q, and %q were sent", told, keys)
		}
		for i, want := range sales {
			times, replies := sent[keys[i]], strings.Fields(want.replies)
			if outcomes[i] != want.outcome || len(times) != len(replies) {
				t.Errorf("%q: %q after %d requests, want %q", want.replies, outcomes[i], len(times), want.outcome)
			}
			if strings.HasSuffix(replies[0], "+1") && times[1].Sub(times[0]) < time.Second {
				t.Errorf("%q: sent again after %v", want.replies, times[1].Sub(times[0]))
			}
		}
	})
}
