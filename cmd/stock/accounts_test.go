package main

import (
	"context"
	"crypto/tls"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"stock/internal/access"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
	"stock/internal/stock/catalogue"
)

// secret is every password of these tests, which must not be printed.
const secret = "Ek9-secret"

// rules returns the lines of docs/operations.md that begin with a command, with the password of the tests.
func rules(t *testing.T, prefixes ...string) (lines []string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(line, prefix) }) {
			lines = append(lines, strings.ReplaceAll(strings.TrimSpace(line), "PASSWORD", secret))
		}
	}
	if len(lines) < len(prefixes) {
		t.Fatalf("docs/operations.md has only %q", lines)
	}
	return lines
}

// secured are servers with TLS and the accounts of docs/operations.md, which take no other clients.
type secured struct {
	ca      *serverstest.CA
	server  servers.TLS // certificate of every server
	client  string      // the settings of TLS of a client
	redis   []*redis.Client
	mysql   *servers.MySQL
	etcd    *servers.Etcd
	zk      *servers.ZooKeeper
	secrets environment // every STOCK_*_PASSWORD_FILE
}

func newSecured(t *testing.T) *secured {
	t.Helper()
	ca := serverstest.NewCA(t)
	s := &secured{ca: ca, server: ca.Issue(t, "server", "127.0.0.1"), secrets: environment{}}
	client := ca.Issue(t, "client")
	s.client = "ca=" + ca.File + ",cert=" + client.Cert + ",key=" + client.Key
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, server := range []string{"MYSQL", "REDIS", "ETCD", "ZOOKEEPER"} {
		s.secrets["STOCK_"+server+"_PASSWORD_FILE"] = file
	}
	return s
}

// with returns the secrets that are used, and other variables.
func (s *secured) with(envs ...environment) environment {
	all := environment{}
	for _, env := range envs {
		maps.Copy(all, env)
	}
	for server, used := range map[string]string{
		"MYSQL": "STOCK_MYSQL_DSN", "REDIS": "STOCK_REDIS", "ETCD": "STOCK_ETCD", "ZOOKEEPER": "STOCK_ZOOKEEPER",
	} {
		name := "STOCK_" + server + "_PASSWORD_FILE"
		if _, set := all[strings.TrimSuffix(name, "_FILE")]; all[used] != "" && !set {
			all[name] = s.secrets[name]
		}
	}
	return all
}

// startMySQL also makes the accounts and the database stock.
func (s *secured) startMySQL(t *testing.T) environment {
	t.Helper()
	s.mysql = serverstest.StartMySQL(t, servers.MySQLOptions{Relaxed: true, Args: []string{
		"--ssl-ca=" + s.server.CA, "--ssl-cert=" + s.server.Cert, "--ssl-key=" + s.server.Key,
	}})
	if _, err := s.mysql.CreateDatabase(t.Context(), "stock"); err != nil {
		t.Fatal(err)
	}
	root := s.root(t)
	for _, statement := range rules(t, "CREATE USER stock ", "GRANT ", "CREATE USER stock_migrate ", "CREATE USER stock_lab ") {
		if _, err := root.ExecContext(t.Context(), strings.TrimSuffix(statement, ";")); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	return environment{"STOCK_MYSQL_DSN": "stock@tcp(" + s.mysql.Addr + ")/stock", "STOCK_MYSQL_TLS": s.client}
}

func (s *secured) root(t *testing.T) *sql.DB {
	t.Helper()
	root, err := sql.Open("mysql", s.mysql.DSN("stock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return root
}

// startRedis starts n masters, each with a Redis replica. The default user, over the port without TLS, is for the test.
func (s *secured) startRedis(t *testing.T, n int) environment {
	t.Helper()
	var addresses []string
	for range n {
		port, err := servers.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		server := serverstest.StartRedis(t, servers.RedisOptions{Args: []string{
			"--tls-port", strconv.Itoa(port), "--tls-ca-cert-file", s.server.CA,
			"--tls-cert-file", s.server.Cert, "--tls-key-file", s.server.Key,
		}})
		serverstest.StartRedis(t, servers.RedisOptions{ReplicaOf: server.Addr})
		admin := redis.NewClient(&redis.Options{Addr: server.Addr})
		t.Cleanup(func() { admin.Close() })
		for _, rule := range rules(t, "ACL SETUSER stock ") {
			if err := admin.Do(t.Context(), words(rule)...).Err(); err != nil {
				t.Fatalf("%s: %v", rule, err)
			}
		}
		if err := admin.ConfigResetStat(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		s.redis = append(s.redis, admin)
		addresses = append(addresses, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	}
	env := environment{"STOCK_REDIS": addresses[0], "STOCK_REDIS_USER": "stock", "STOCK_REDIS_TLS": s.client}
	if n > 1 {
		env["STOCK_REDIS_REPLICA"], env["STOCK_REDLOCK"] = "true", strings.Join(addresses, ",")
	}
	return env
}

func words(line string) (args []any) {
	for _, word := range strings.Fields(line) {
		args = append(args, word)
	}
	return args
}

// startEtcd gives the user stock the permissions that docs/operations.md gives it with etcdctl.
func (s *secured) startEtcd(t *testing.T) environment {
	t.Helper()
	s.etcd = serverstest.StartEtcd(t, servers.EtcdOptions{Relaxed: true, TLS: &s.server})
	admin := s.etcdClient(t)
	ctx, must := t.Context(), func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(admin.UserAdd(ctx, "root", secret))
	must(admin.UserGrantRole(ctx, "root", "root"))
	must(admin.RoleAdd(ctx, "stock"))
	for _, grant := range rules(t, "etcdctl role grant-permission stock --prefix=true readwrite ") {
		prefix := grant[strings.LastIndex(grant, " ")+1:]
		must(admin.RoleGrantPermission(ctx, "stock", prefix, clientv3.GetPrefixRangeEnd(prefix),
			clientv3.PermissionType(clientv3.PermReadWrite)))
	}
	must(admin.UserAdd(ctx, "stock", secret))
	must(admin.UserGrantRole(ctx, "stock", "stock"))
	must(admin.AuthEnable(ctx))
	return environment{"STOCK_ETCD": s.etcd.Addr, "STOCK_ETCD_USER": "stock", "STOCK_ETCD_TLS": s.client}
}

func (s *secured) etcdClient(t *testing.T) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{"https://" + s.etcd.Addr}, TLS: s.tls(t), DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

func (s *secured) tls(t *testing.T) *tls.Config {
	t.Helper()
	config, err := access.TLS(s.client)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func (s *secured) startZooKeeper(t *testing.T) environment {
	t.Helper()
	s.zk = serverstest.StartZooKeeper(t, servers.ZooKeeperOptions{Relaxed: true, TLS: &s.server})
	return environment{"STOCK_ZOOKEEPER": s.zk.TLSAddr, "STOCK_ZOOKEEPER_USER": "stock", "STOCK_ZOOKEEPER_TLS": s.client}
}

// migrate migrates with the account for that.
func (s *secured) migrate(t *testing.T, env environment) {
	t.Helper()
	env = maps.Clone(env)
	if _, err := command(t, env, "migrate"); err == nil || !strings.Contains(err.Error(), "docs/operations.md") {
		t.Fatalf("the account of the service can migrate, or the error does not say what to do: %v", err)
	}
	env["STOCK_MYSQL_DSN"] = strings.Replace(env["STOCK_MYSQL_DSN"], "stock@", "stock_migrate@", 1)
	if _, err := command(t, env, "migrate"); err != nil {
		t.Fatal(err)
	}
}

func TestEveryStrategyWorksWithTLSAndTheDocumentedAccounts(t *testing.T) {
	t.Parallel()
	s := newSecured(t)
	env := s.with(s.startMySQL(t), s.startRedis(t, 3), s.startEtcd(t), s.startZooKeeper(t),
		environment{"STOCK_MAX_HOLD": "1s", "STOCK_LEASE": "5s"})
	s.migrate(t, env)
	p := launch(t, env, "serve")
	p.expect(t, "GET", p.url+"/readyz", 200)
	for item := range int64(3) {
		p.setStock(t, item+1, 100_000)
	}
	listed := p.expect(t, "GET", p.url+"/strategies", 200)["strategies"].([]any)
	if len(listed) != len(catalogue.Strategies) {
		t.Fatalf("%d strategies, want %d", len(listed), len(catalogue.Strategies))
	}
	for _, entry := range listed {
		s := entry.(map[string]any)
		if unavailable, _ := s["unavailable"].(map[string]any); len(unavailable) > 0 {
			t.Errorf("%v is unavailable: %v", s["name"], unavailable)
		}
		for _, store := range s["stores"].([]any) {
			p.sellAtOnce(t, fmt.Sprintf("/stock/deduct/%v?goods_id=1&count=1&store=%v&hold_ms=5", s["name"], store))
		}
		orders, _ := s["orders"].([]any)
		for _, store := range orders {
			body := fmt.Sprintf(`{"lines":[{"goods_id":2,"count":1},{"goods_id":1,"count":2}],"store":%q}`, store)
			if status, reply := p.send("POST", fmt.Sprintf("%s/stock/orders/%v", p.url, s["name"]), body); status != 200 {
				t.Errorf("order by %v on %v: %d %v", s["name"], store, status, reply)
			}
		}
	}
	t.Log(s.commands(t))
	if text := p.log(); strings.Contains(text, secret) || strings.Contains(text, "denied") || strings.Contains(text, "NOPERM") {
		t.Errorf("the log has a password, or something that was not permitted:\n%s", text)
	}
}

// sellAtOnce sends a request several times at once, so that requests wait for each other.
func (p *program) sellAtOnce(t *testing.T, path string) {
	t.Helper()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			status, body := p.call("POST", p.url+path)
			if status != 200 && body["type"] != "busy" {
				t.Errorf("%s answers %d %v", path, status, body)
			}
		})
	}
	wg.Wait()
}

var commandStat = regexp.MustCompile(`(?m)^cmdstat_([a-z|-]+):calls=`)

// commands returns the commands that the Redis servers have carried out.
func (s *secured) commands(t *testing.T) (names []string) {
	t.Helper()
	for _, admin := range s.redis {
		info, err := admin.Info(t.Context(), "commandstats").Result()
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range commandStat.FindAllStringSubmatch(info, -1) {
			names = append(names, match[1])
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

var _ = zk.ErrNoAuth
var _ = errors.Is
var _ context.Context
