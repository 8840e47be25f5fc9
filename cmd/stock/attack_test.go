package main

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"stock/internal/must"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
	"stock/internal/stock/catalogue"
)

// size is what a replica uses.
type size struct {
	goroutines, files int
	heap              int // bytes that are in use after a garbage collection
}

// size reads the replica's metrics after a garbage collection.
func (p *program) size(t *testing.T) (s size) {
	t.Helper()
	p.read(t, "/debug/pprof/heap?gc=1")
	for line := range strings.Lines(p.read(t, "/metrics")) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		value, _ := strconv.ParseFloat(text, 64)
		switch name {
		case "go_goroutines":
			s.goroutines = int(value)
		case "process_open_fds":
			s.files = int(value)
		case "go_memstats_heap_alloc_bytes":
			s.heap = int(value)
		}
	}
	return s
}

// read returns what the admin listener answers.
func (p *program) read(t *testing.T, path string) string {
	t.Helper()
	response, err := http.Get(p.admin + path)
	must.Succeed(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	must.Succeed(t, err)
	return string(body)
}

// A lock that may have been granted is released until Redis answers or its lease has ended. That must not add up.
func TestAReplicaReturnsToItsSizeAfterManyLocksWhileRedisIsDown(t *testing.T) {
	t.Parallel()
	const clients, requests = 50, 100
	// The pools keep connections, each with a file and a few goroutines.
	const keptFiles, keptGoroutines, keptHeap = 64, 128, 8 << 20
	redis, env := serverstest.StartRedis(t, servers.RedisOptions{}), migrated(t)
	env["STOCK_REDIS"] = redis.Addr
	p := launch(t, env, "serve", "--lock-wait=2s", "--lease=10m", "--mysql-conns=8")
	p.awaitReady(t)
	before := p.size(t)
	redis.Kill()
	var names []string
	for _, strategy := range catalogue.Strategies {
		if strings.HasPrefix(strategy.Name, "lock-redis-") {
			names = append(names, strategy.Name)
		}
	}
	var sending sync.WaitGroup
	for client := range clients {
		sending.Go(func() {
			for i := range requests {
				p.call("POST", fmt.Sprintf("%s/stock/deduct/%s?goods_id=1&count=1", p.url, names[(client+i)%len(names)]))
			}
		})
	}
	sending.Wait()
	eventually(t, "the replica has returned to its size", func() bool {
		after := p.size(t)
		return after.goroutines <= before.goroutines+keptGoroutines && after.files <= before.files+keptFiles &&
			after.heap <= before.heap+keptHeap
	})
	p.expect(t, "POST", p.url+"/stock/deduct/update?goods_id=1&count=1", 200)
}
