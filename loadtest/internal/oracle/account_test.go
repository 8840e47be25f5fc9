package oracle

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"stock/internal/access"
	"stock/internal/must"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
	"stock/migrations"
)

// secured returns the configuration of an oracle that reads, with TLS and the accounts of docs/accounts.md, 6000
// units of item 1 in MySQL and 7 in Redis.
func secured(t *testing.T) (config Config, ca *serverstest.CA) {
	t.Helper()
	ca = serverstest.NewCA(t)
	server, client := ca.Issue(t, "server", "127.0.0.1"), ca.Issue(t, "client")
	db := serverstest.StartMySQL(t, servers.MySQLOptions{Relaxed: true, Args: serverstest.MySQLWithTLS(server)})
	dsn, err := db.CreateDatabase(t.Context(), "stock")
	must.Succeed(t, err)
	root, err := sql.Open("mysql", dsn)
	must.Succeed(t, err)
	defer root.Close()
	_, err = migrations.Up(t.Context(), root)
	for _, statement := range serverstest.Rules(t, "../../../docs/accounts.md", "CREATE USER stock", "GRANT SELECT") {
		_, err2 := root.ExecContext(t.Context(), strings.TrimSuffix(statement, ";"))
		err = errors.Join(err, err2)
	}
	store := serverstest.StartRedis(t, servers.RedisOptions{TLS: &server})
	admin := serverstest.RedisClient(t, &redis.Options{Addr: store.Addr})
	rules := serverstest.Rules(t, "../../../docs/accounts.md", "ACL SETUSER stock_reader ")
	serverstest.SetUser(t, &redis.Options{Addr: store.Addr}, rules)
	tls, err2 := access.TLS("ca=" + ca.File + ",cert=" + client.Cert + ",key=" + client.Key)
	must.Succeed(t, errors.Join(err, err2, admin.Set(t.Context(), "stock:{1}", 7, 0).Err()))
	return Config{
		MySQLDSN: "stock_reader@tcp(" + db.Addr + ")/stock", Redis: []string{store.TLSAddr}, Redlock: []string{store.TLSAddr},
		Account: Account{
			MySQLPassword: serverstest.Secret, MySQLTLS: tls,
			RedisUser: "stock_reader", RedisPassword: serverstest.Secret, RedisTLS: tls,
		},
	}, ca
}

func TestTheOracleReadsWithTLSAndTheDocumentedAccounts(t *testing.T) {
	t.Parallel()
	config, ca := secured(t)
	config.Redlock = nil // it is the same server, whose commands would count twice
	o, err := Open(t.Context(), config)
	must.Succeed(t, err)
	defer o.Close()
	for store, want := range map[string]int64{MySQL: 6000, Slots: 6000, Units: 6000, Redis: 7} {
		if got, err := o.Stock(t.Context(), store, []int64{1}); err != nil || got[1] != want {
			t.Errorf("%s: %v, %v, want %d", store, got, err, want)
		}
	}
	before, err := o.Counters(t.Context())
	_, err2 := o.Ledger(t.Context(), "run")
	described, err3 := o.Servers(t.Context())
	after, err4 := o.Counters(t.Context())
	must.Succeed(t, errors.Join(err, err2, err3, err4))
	if settings := fmt.Sprint(described[1].Settings); settings != "map[appendonly:no]" {
		t.Errorf("the settings of Redis are %s, want appendonly alone: the account may not read its passwords", settings)
	}
	if got := after.Since(before); got != (Counters{}) {
		t.Errorf("the oracle counts its own work: %+v", got)
	}
	refusals(t, config, ca)
}

// refusals tries configurations with a mistake. Each error says what to do, and shows no password.
func refusals(t *testing.T, right Config, ca *serverstest.CA) {
	t.Helper()
	stranger, err := access.TLS("ca=" + serverstest.NewCA(t).File)
	anonymous, err2 := access.TLS("ca=" + ca.File)
	must.Succeed(t, errors.Join(err, err2))
	for name, test := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"MySQL of an unknown CA":      {func(c *Config) { c.MySQLTLS = stranger }, "with ca=FILE"},
		"MySQL without TLS":           {func(c *Config) { c.MySQLTLS = nil }, "requires TLS"},
		"wrong password of MySQL":     {func(c *Config) { c.MySQLPassword += "x" }, "check the user, the password"},
		"two passwords of MySQL":      {func(c *Config) { c.MySQLDSN = "a:" + c.MySQLDSN }, "remove one"},
		"TLS that may fall back":      {func(c *Config) { c.MySQLDSN += "?allowFallbackToPlaintext=true" }, "remove one"},
		"TLS of MySQL twice":          {func(c *Config) { c.MySQLDSN += "?tls=true" }, "remove one"},
		"TLS through a socket":        {func(c *Config) { c.MySQLDSN = "stock_reader@unix(/tmp/s)/stock" }, "remove one"},
		"Redis of an unknown CA":      {func(c *Config) { c.RedisTLS = stranger }, "with ca=FILE"},
		"Redis without a certificate": {func(c *Config) { c.RedisTLS = anonymous }, "cert=FILE"},
		"wrong password of Redis":     {func(c *Config) { c.RedisPassword += "x" }, "check the user and the password"},
	} {
		wrong := right
		test.change(&wrong)
		o, err := Open(t.Context(), wrong)
		if err == nil {
			o.Close()
		}
		if text := fmt.Sprint(err); !strings.Contains(text, test.want) || strings.Contains(text, serverstest.Secret) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}
