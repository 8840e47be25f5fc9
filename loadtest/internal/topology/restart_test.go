package topology_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"stock/internal/must"
)

// sold is the outcome of a request that succeeded.
const sold = "sold"

// users deduct one unit after the other through nginx, in a closed loop.
type users struct {
	stop    chan struct{}
	running sync.WaitGroup
	mu      sync.Mutex
	outcome map[string]int // number of requests by outcome
}

func startUsers(t *testing.T, n int) *users {
	t.Helper()
	u := &users{stop: make(chan struct{}), outcome: map[string]int{}}
	transport := &http.Transport{MaxIdleConnsPerHost: n}
	t.Cleanup(transport.CloseIdleConnections)
	client := &http.Client{Transport: transport, Timeout: 30 * time.Second}
	for range n {
		u.running.Go(func() {
			for {
				select {
				case <-u.stop:
					return
				default:
				}
				outcome := deductOne(client)
				u.mu.Lock()
				u.outcome[outcome]++
				u.mu.Unlock()
			}
		})
	}
	return u
}

// deductOne deducts one unit and returns sold, or the status and the type of the problem.
func deductOne(client *http.Client) string {
	response, err := client.Post(lab.URL+"/stock/deduct/update?goods_id=1&count=1", "", nil)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err.Error()
	}
	if response.StatusCode == http.StatusOK {
		return sold
	}
	var problem struct{ Type string }
	_ = json.Unmarshal(body, &problem)
	return fmt.Sprint(response.StatusCode, " ", problem.Type)
}

// end stops the users. It returns the number of units sold, and how many requests failed in which way.
func (u *users) end() (units int, failed map[string]int) {
	close(u.stop)
	u.running.Wait()
	failed = maps.Clone(u.outcome)
	delete(failed, sold)
	return u.outcome[sold], failed
}

const plenty = 1_000_000

func setStock(t *testing.T, units int) {
	t.Helper()
	header := http.Header{"Content-Type": {"application/json"}}
	url := lab.Replicas[0].AdminURL + "/admin/stock/1"
	if reply := do(t, http.MethodPut, url, header, fmt.Sprintf(`{"stock":%d}`, units)); reply.status != http.StatusOK {
		t.Fatalf("setting the stock: %d %s", reply.status, reply.body)
	}
}

func stockLeft(t *testing.T) int {
	t.Helper()
	var left struct{ Stock int }
	reply := do(t, http.MethodGet, lab.Replicas[0].URL+"/stock/1", nil, "")
	must.Succeed(t, json.NewDecoder(strings.NewReader(reply.body)).Decode(&left))
	return left.Stock
}

func TestRollingRestartUnderLoadFailsNoRequest(t *testing.T) {
	setStock(t, plenty)
	load := startUsers(t, 100)
	time.Sleep(500 * time.Millisecond)
	for _, replica := range lab.Replicas {
		if err := replica.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(200 * time.Millisecond) // the other replica serves alone
		must.Succeed(t, replica.Restart(t.Context()))
		time.Sleep(500 * time.Millisecond)
	}
	sold, failed := load.end()
	t.Logf("%d requests succeeded", sold)
	if len(failed) > 0 {
		t.Errorf("requests failed: %v", failed)
	}
	if deducted := plenty - stockLeft(t); deducted != sold {
		t.Errorf("%d units were confirmed and %d deducted", sold, deducted)
	}
}
