package topology_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"stock/internal/must"
	"stock/internal/servers/serverstest"
)

// startUsers has users deduct one unit after the other through nginx until they are told to stop.
func startUsers(t *testing.T, n int, stop <-chan struct{}) (sold *atomic.Int64, running *sync.WaitGroup) {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: n}
	t.Cleanup(transport.CloseIdleConnections)
	client := &http.Client{Transport: transport, Timeout: time.Minute}
	sold, running = &atomic.Int64{}, &sync.WaitGroup{}
	deduct := func() {
		response, err := client.Post(lab.URL+"/stock/deduct/update?goods_id=1&count=1", "", nil)
		if err != nil {
			t.Error(err)
			return
		}
		response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Errorf("a request is answered %s", response.Status)
			return
		}
		sold.Add(1)
	}
	for range n {
		running.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					deduct()
				}
			}
		})
	}
	return sold, running
}

func TestRollingRestartUnderLoadFailsNoRequest(t *testing.T) {
	const plenty = 1_000_000
	header, url := http.Header{"Content-Type": {"application/json"}}, lab.Replicas[0].AdminURL+"/admin/stock/1"
	if got := do(t, http.MethodPut, url, header, fmt.Sprintf(`{"stock":%d}`, plenty)); got.status != http.StatusOK {
		t.Fatalf("setting the stock: %d %s", got.status, got.body)
	}
	stop := make(chan struct{})
	sold, running := startUsers(t, 50, stop)
	awaitSales := func(n int64) {
		enough := sold.Load() + n
		serverstest.Eventually(t, "sales go on", func() bool { return sold.Load() >= enough })
	}
	for _, replica := range lab.Replicas {
		awaitSales(2000) // nginx has its connections: one that is opened while a replica stops listening is lost
		must.Succeed(t, replica.Stop(t.Context()))
		awaitSales(1000) // of the other replica
		must.Succeed(t, replica.Restart(t.Context()))
	}
	awaitSales(1000)
	close(stop)
	running.Wait()
	var left struct{ Stock int64 }
	reply := do(t, http.MethodGet, lab.Replicas[0].URL+"/stock/1", nil, "")
	must.Succeed(t, json.NewDecoder(strings.NewReader(reply.body)).Decode(&left))
	if sold := sold.Load(); plenty-left.Stock != sold || sold == 0 {
		t.Errorf("%d units were confirmed and %d deducted", sold, plenty-left.Stock)
	}
}
