package traffic

import (
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"stock/loadtest/internal/history"
)

// keys counts the requests with each key, and remembers those in flight.
type keys struct {
	mu       sync.Mutex
	received map[string]int
}

func (k *keys) add(r *http.Request) (times int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.received[r.Header.Get("Idempotency-Key")]++
	return k.received[r.Header.Get("Idempotency-Key")]
}

// sell sells, and marks the answers to requests whose key was there before.
func (k *keys) sell(w http.ResponseWriter, r *http.Request) {
	if k.add(r) > 1 {
		w.Header().Set("Idempotency-Replayed", "true")
	}
	sell(w, r)
}

func TestRequestsAreSentAgainDuringTheLoad(t *testing.T) {
	t.Parallel()
	k := keys{received: map[string]int{}}
	mix := newMix(t, MixConfig{Seed: 1, Goods: 3, MinCount: 1, MaxCount: 3, OrderEvery: 2, MaxLines: 2})
	load := Load{Mix: mix, Users: 8, Requests: 400, RequestPrefix: "t", Keys: true, Retries: true}
	result := send(t, serve(t, 8, k.sell), load)
	if result.Sent != 400 || result.OutOfTime {
		t.Errorf("%d sent, out of time %v, want the load of 400", result.Sent, result.OutOfTime)
	}
	first := map[string]history.Op{}
	for _, op := range result.Ops {
		if !op.Again {
			first[op.Name] = op
		}
	}
	how := map[string]int{} // by kind and way
	for _, op := range result.Ops {
		if !op.Again {
			continue
		}
		how[op.Kind+" "+op.How]++
		was := first[op.Name]
		if op.Kind != was.Kind || op.GoodsID != was.GoodsID || !slices.EqualFunc(op.Lines, was.Lines, sameLine) {
			t.Errorf("sent again as %+v, first as %+v", op, was)
		}
		switch op.How {
		case history.InFlight:
			if op.Client == was.Client {
				t.Errorf("request %s was sent in flight by the same client", op.Name)
			}
		case history.AtOnce, history.Later:
			if op.Client != was.Client || op.SentNS < was.ReceivedNS {
				t.Errorf("request %s was sent again %s by client %d, %d ns after the answer to client %d",
					op.Name, op.How, op.Client, op.SentNS-was.ReceivedNS, was.Client)
			}
		default:
			t.Errorf("request %s was sent again during the load, but not how: %q", op.Name, op.How)
		}
	}
	for _, kind := range []string{history.Deduct, history.Order} {
		for _, way := range []string{history.AtOnce, history.InFlight, history.Later} {
			if how[kind+" "+way] != 50 {
				t.Errorf("%d of 200 requests (%s) were sent again %s, want 50", how[kind+" "+way], kind, way)
			}
		}
	}
	if len(k.received) != 400 {
		t.Errorf("%d different keys, want 400", len(k.received))
	}
}

func sameLine(a, b history.Line) bool { return a.GoodsID == b.GoodsID && a.Count == b.Count }

// Each reply waits until the request is there a second time.
func TestARequestIsSentAgainWhileItIsInFlight(t *testing.T) {
	t.Parallel()
	k := keys{received: map[string]int{}}
	both := make(chan struct{})
	driver := serve(t, 2, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Idempotency-Key") == "t-2" {
			if k.add(r) == 2 {
				close(both)
			}
			<-both
		}
		sell(w, r)
	})
	result := send(t, driver, Load{Users: 2, Requests: 3, RequestPrefix: "t", Keys: true, Retries: true})
	n := 0
	for _, op := range result.Ops {
		if op.Name == "t-2" && op.Outcome == history.Sold {
			n++
		}
	}
	if n != 2 {
		t.Errorf("request t-2 was answered %d times, want twice", n)
	}
}

func TestRetriesNeedKeysAndPairs(t *testing.T) {
	t.Parallel()
	driver := serve(t, 2, sell)
	good := Load{Mix: one(t), Users: 2, Requests: 1, Timeout: time.Minute, Keys: true, Retries: true}
	if _, err := driver.Run(t.Context(), good); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*Load){
		"no keys":      func(l *Load) { l.Keys = false },
		"one user":     func(l *Load) { l.Users = 1 },
		"an open loop": func(l *Load) { l.Rate = 100 },
	} {
		load := good
		change(&load)
		if _, err := driver.Run(t.Context(), load); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
