package stocktest

import (
	"bytes"
	"regexp"
	"testing"

	"github.com/redis/go-redis/v9"

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
	return proxy, &redis.Options{Addr: proxy.Addr(), DB: options.DB}
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
