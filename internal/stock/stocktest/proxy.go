package stocktest

import (
	"bytes"
	"regexp"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"stock/internal/servers/serverstest"
	"stock/internal/stock"
	"stock/internal/tcpproxy"
)

// Evalsha matches the call of a script by its hash, as Redis's clients send it.
var Evalsha = regexp.MustCompile(`(?i)\r\nevalsha\r\n`)

// ProxyMySQL starts a proxy before a MySQL server, and returns it with the DSN that leads through it.
func ProxyMySQL(t testing.TB, dsn string) (proxy *tcpproxy.Proxy, proxied string) {
	t.Helper()
	config := parseDSN(t, dsn)
	proxy = tcpproxy.New(t, config.Addr)
	config.Addr = proxy.Addr()
	return proxy, config.FormatDSN()
}

// ProxyRedis starts a proxy before a Redis server, and returns it with the options that lead through it.
func ProxyRedis(t testing.TB, options *redis.Options) (proxy *tcpproxy.Proxy, proxied *redis.Options) {
	t.Helper()
	proxy = tcpproxy.New(t, options.Addr)
	behind := *options
	behind.Addr = proxy.Addr()
	return proxy, &behind
}

// Matching selects the messages that match a pattern.
func Matching(pattern *regexp.Regexp) func(tcpproxy.Message) bool {
	return func(m tcpproxy.Message) bool { return pattern.Match(m.Data) }
}

// Committing selects the statements to MySQL that match a pattern and take effect at once: COMMIT, or a statement
// outside of a transaction.
func Committing(pattern *regexp.Regexp) func(tcpproxy.Message) bool {
	inTransaction := map[int]bool{} // by connection
	return func(m tcpproxy.Message) bool {
		begins := bytes.Contains(m.Data, []byte("START TRANSACTION"))
		inTransaction[m.Conn] = (inTransaction[m.Conn] || begins) && !transactionEnd.Match(m.Data)
		return !inTransaction[m.Conn] && pattern.Match(m.Data)
	}
}

var transactionEnd = regexp.MustCompile(`(COMMIT|ROLLBACK)$`)

// nth selects the n-th message that has a key, or is a COMMIT.
func nth(n int, key string) func(tcpproxy.Message) bool {
	var mu sync.Mutex
	seen := 0
	return func(m tcpproxy.Message) bool {
		mu.Lock()
		defer mu.Unlock()
		if bytes.Contains(m.Data, []byte(key)) || bytes.HasSuffix(m.Data, []byte("COMMIT")) {
			seen++
			return seen == n
		}
		return false
	}
}

// eachMessage calls strike with 1, 2 and so on, until it reports that there is no such message.
func eachMessage(t testing.TB, strike func(n int) bool) {
	t.Helper()
	n := 1
	for strike(n) {
		n++
	}
	if n == 1 {
		t.Error("no message has the key")
	}
}

// heldRequest is a request of which a message is held on its way.
type heldRequest struct {
	held   bool // false: the request has ended
	caught []*tcpproxy.Caught
	done   chan Answer
}

// holdNth sends a request, and holds its n-th message on its way.
func holdNth(
	t testing.TB, proxies []*tcpproxy.Proxy, n int, key string, request func() (stock.Receipt, error),
) heldRequest {
	t.Helper()
	h := heldRequest{done: make(chan Answer, 1)}
	match := nth(n, key)
	for _, proxy := range proxies {
		h.caught = append(h.caught, proxy.Catch(match))
	}
	go func() {
		receipt, err := request()
		h.done <- Answer{receipt, err}
	}()
	serverstest.Eventually(t, "the message is held, or the request has ended", func() bool {
		for _, c := range h.caught {
			select {
			case <-c.Arrived():
				h.held = true
			default:
			}
		}
		return h.held || len(h.done) > 0
	})
	if !h.held {
		h.release()
	}
	return h
}

func (h heldRequest) release() {
	for _, c := range h.caught {
		c.Release()
	}
}

// resume lets the message go on, and returns the answer to the request.
func (h heldRequest) resume() Answer {
	h.release()
	return <-h.done
}
