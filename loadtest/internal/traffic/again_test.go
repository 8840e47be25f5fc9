package traffic

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"stock/loadtest/internal/history"
)

func TestSendAgainUsesTheSameKeyAfterTheLoad(t *testing.T) {
	t.Parallel()
	k := keys{received: map[string]int{}}
	driver := serve(t, 4, k.sell)
	load := Load{Mix: one(t), Users: 4, Requests: 500, Timeout: time.Minute, Keys: true, RequestPrefix: "t"}
	result := send(t, driver, load)
	if len(result.Ops) != 500 {
		t.Errorf("the load sent %d requests, want each of the 500 once", len(result.Ops))
	}
	driver.SendAgain(t.Context(), load, &result)
	again := 0
	for _, op := range result.Ops {
		if !strings.HasPrefix(op.Name, "t-") || k.received[op.Name] == 0 {
			t.Fatalf("request %s was not sent with its name as its key", op.Name)
		}
		if op.Again != op.Replayed || op.Again != (op.SentNS > result.EndedNS) {
			t.Errorf("request %s: again %v, replayed %v, sent %d ns after the end of the load",
				op.Name, op.Again, op.Replayed, op.SentNS-result.EndedNS)
		}
		if op.Again {
			again++
		}
	}
	if again == 0 || again > 2*maxAgain || result.Sent != 500 || result.OutOfTime {
		t.Errorf("%d requests were sent again after %d, out of time %v", again, result.Sent, result.OutOfTime)
	}
}

func TestRestocksGoOnDuringTheLoad(t *testing.T) {
	t.Parallel()
	answers := []struct {
		status  int
		body    string
		outcome history.Outcome
	}{
		{200, `{"goods_id":1,"stock":7,"store":"redis"}`, history.Sold},
		{200, `{"goods_id":1}`, history.Unknown}, // confirms nothing
		{500, `{"type":"/problems/outcome-unknown"}`, history.Unknown},
		{503, `{"type":"/problems/busy"}`, history.Busy},
		{502, `bad gateway`, history.Unknown},
		{409, `{"type":"/problems/overstocked"}`, history.Rejected},
	}
	var restocks atomic.Int64
	driver := serve(t, 2, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stock/deduct" {
			sell(w, r)
			return
		}
		n := int(restocks.Add(1))
		if got := r.URL.String(); !strings.HasSuffix(got, "/restock?store=redis") {
			t.Errorf("%s %s", r.Method, got)
		}
		a := answers[(n-1)%len(answers)]
		w.WriteHeader(a.status)
		fmt.Fprint(w, a.body)
	})
	admin := (&url.URL{Scheme: "http", Host: driver.servers[0].host}).String()
	result := send(t, driver, Load{
		Mix: newMix(t, MixConfig{Goods: 2, MinCount: 1, MaxCount: 1}), Users: 2, Duration: time.Second, RequestPrefix: "t",
		Restock: &Restock{Admin: admin, Store: "redis", Units: 5, Every: time.Millisecond},
	})
	n := 0
	for _, op := range result.Ops {
		if op.Kind != history.Restock {
			continue
		}
		want := answers[n%len(answers)]
		if op.Outcome != want.outcome || op.Status != want.status || op.Count != 5 || op.GoodsID != int64(1+n%2) {
			t.Errorf("restock %d: %+v, want %s", n, op, want.outcome)
		}
		n++
	}
	if int64(n) != restocks.Load() || n == 0 || result.Sent+n != len(result.Ops) {
		t.Errorf("%d restocks are recorded, %d were received; %d of %d requests are deductions",
			n, restocks.Load(), result.Sent, len(result.Ops))
	}
}
