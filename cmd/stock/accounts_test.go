package main

import (
	"cmp"
	"crypto/tls"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"stock/internal/access"
	"stock/internal/must"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
	"stock/internal/stock/catalogue"
)

// secret is every password of these tests, which must not be printed.
const secret = serverstest.Secret

// rules returns the lines of docs/accounts.md that begin with one of the prefixes.
func rules(t *testing.T, prefixes ...string) (lines []string) {
	t.Helper()
	return serverstest.Rules(t, "../../docs/accounts.md", prefixes...)
}

// secured are servers with TLS and the accounts of docs/accounts.md, which take no other clients.
type secured struct {
	ca      *serverstest.CA
	server  servers.TLS // certificate of every server
	client  string      // the settings of TLS of a client
	mysql   *servers.MySQL
	etcd    *servers.Etcd
	zk      *servers.ZooKeeper
	secrets environment // every STOCK_*_PASSWORD_FILE
	prefix  string      // the --key-prefix that the accounts are for: none, or that of the examples in docs/accounts.md
}

func newSecured(t *testing.T) *secured {
	t.Helper()
	ca := serverstest.NewCA(t)
	s := &secured{ca: ca, server: ca.Issue(t, "server", "127.0.0.1"), secrets: environment{}}
	client := ca.Issue(t, "client")
	s.client = "ca=" + ca.File + ",cert=" + client.Cert + ",key=" + client.Key
	file := filepath.Join(t.TempDir(), "password")
	must.Succeed(t, os.WriteFile(file, []byte(secret+"\n"), 0o600))
	for _, server := range []string{"MYSQL", "REDIS", "ETCD", "ZOOKEEPER"} {
		s.secrets["STOCK_"+server+"_PASSWORD_FILE"] = file
	}
	return s
}

// with merges envs, and adds the password files of the servers in them.
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
	s.mysql = serverstest.StartMySQL(t, servers.MySQLOptions{Relaxed: true, Args: serverstest.MySQLWithTLS(s.server)})
	_, err := s.mysql.CreateDatabase(t.Context(), "stock")
	must.Succeed(t, err)
	root := s.root(t)
	for _, statement := range rules(t, "CREATE USER stock", "GRANT SELECT") {
		if _, err := root.ExecContext(t.Context(), strings.TrimSuffix(statement, ";")); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	return environment{"STOCK_MYSQL_DSN": "stock@tcp(" + s.mysql.Addr + ")/stock", "STOCK_MYSQL_TLS": s.client}
}

func (s *secured) root(t *testing.T) *sql.DB {
	t.Helper()
	root, err := sql.Open("mysql", s.mysql.DSN("stock"))
	must.Succeed(t, err)
	t.Cleanup(func() { root.Close() })
	return root
}

// startRedis starts n masters, each with a Redis replica. The default user, over the port without TLS, is for the test.
func (s *secured) startRedis(t *testing.T, n int) environment {
	t.Helper()
	var addresses []string
	for range n {
		server := serverstest.StartRedis(t, servers.RedisOptions{TLS: &s.server})
		serverstest.StartRedis(t, servers.RedisOptions{ReplicaOf: server.Addr})
		serverstest.SetUser(t, &redis.Options{Addr: server.Addr}, s.redisRules(t))
		addresses = append(addresses, server.TLSAddr)
	}
	env := environment{"STOCK_REDIS": addresses[0], "STOCK_REDIS_USER": "stock", "STOCK_REDIS_TLS": s.client}
	if n > 1 {
		env["STOCK_REDIS_REPLICA"], env["STOCK_REDLOCK"] = "true", strings.Join(addresses, ",")
	}
	return env
}

// redisRules are those for the user stock.
func (s *secured) redisRules(t *testing.T) (lines []string) {
	t.Helper()
	const usual = " ~stock:* ~lock-* &locks:* "
	lines = rules(t, "ACL SETUSER stock ")
	if !strings.Contains(lines[0], usual) {
		t.Fatalf("the rule %q lacks %q", lines[0], usual)
	}
	if s.prefix != "" {
		lines[0] = strings.Replace(lines[0], usual, " ~"+s.prefix+"* &"+s.prefix+"* ", 1)
	}
	return lines
}

// startEtcd gives the user stock the permissions that docs/accounts.md gives it with etcdctl.
func (s *secured) startEtcd(t *testing.T) environment {
	t.Helper()
	s.etcd = serverstest.StartEtcd(t, servers.EtcdOptions{Relaxed: true, TLS: &s.server})
	admin := s.etcdClient(t)
	ctx, must := t.Context(), func(_ any, err error) {
		t.Helper()
		must.Succeed(t, err)
	}
	must(admin.UserAdd(ctx, "root", secret))
	must(admin.UserGrantRole(ctx, "root", "root"))
	must(admin.RoleAdd(ctx, "stock"))
	role := cmp.Or(strings.TrimSuffix(s.prefix, ":"), "stock")
	for _, grant := range rules(t, "etcdctl role grant-permission "+role+" ") {
		words := strings.Fields(grant)
		key, end, permission := words[len(words)-1], "", clientv3.PermissionType(clientv3.PermRead)
		if slices.Contains(words, "--prefix=true") {
			end = clientv3.GetPrefixRangeEnd(key)
		}
		if slices.Contains(words, "readwrite") {
			permission = clientv3.PermissionType(clientv3.PermReadWrite)
		}
		must(admin.RoleGrantPermission(ctx, "stock", key, end, permission))
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
	must.Succeed(t, err)
	t.Cleanup(func() { client.Close() })
	return client
}

func (s *secured) tls(t *testing.T) *tls.Config {
	t.Helper()
	config, err := access.TLS(s.client)
	must.Succeed(t, err)
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
	if _, err := command(t, env, "migrate"); err == nil || !strings.Contains(err.Error(), "docs/accounts.md") {
		t.Fatalf("the account of the service can migrate, or the error does not say what to do: %v", err)
	}
	env["STOCK_MYSQL_DSN"] = strings.Replace(env["STOCK_MYSQL_DSN"], "stock@", "stock_migrate@", 1)
	mustMigrate(t, env)
}

func TestEveryStrategyWorksWithTLSAndTheDocumentedAccounts(t *testing.T) {
	t.Parallel()
	s := newSecured(t)
	env := s.with(s.startMySQL(t), s.startRedis(t, 3), s.startEtcd(t), s.startZooKeeper(t),
		environment{"STOCK_MAX_HOLD": "1s", "STOCK_LEASE": "5s"})
	s.migrate(t, env)
	replicas := []*program{launch(t, env, "serve"), launch(t, env, "serve")}
	p := replicas[0]
	p.awaitReady(t)
	for item := range int64(4) {
		p.setStock(t, item+1, 10_000)
	}
	listed := p.expect(t, "GET", p.url+"/strategies", 200)["strategies"].([]any)
	if len(listed) != len(catalogue.Strategies) {
		t.Fatalf("%d strategies, want %d", len(listed), len(catalogue.Strategies))
	}
	for _, entry := range listed {
		exercise(t, replicas, entry.(map[string]any))
	}
	p.holdAndCancel(t)
	for _, store := range []string{"mysql", "redis", "slots", "units"} {
		status, body := p.send("POST", p.admin+"/admin/stock/1/restock?store="+store, `{"count":5}`)
		if status != 200 {
			t.Errorf("restock %s: %d %v", store, status, body)
		}
	}
	for _, args := range [][]string{{"prune", "--older-than=1h"}, {"reconcile", "--goods=4"}} {
		if out, err := command(t, env, args...); err != nil {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
	for _, p := range replicas {
		log := p.log()
		if strings.Contains(log, secret) || strings.Contains(log, "denied") || strings.Contains(log, "NOPERM") {
			t.Errorf("the log has a password, or something that was not permitted:\n%s", log)
		}
	}
	checkRule(t)
}

// exercise sells by a strategy, until nothing is left, while others wait for each other or give up.
func exercise(t *testing.T, replicas []*program, strategy map[string]any) {
	t.Helper()
	name := strategy["name"]
	if unavailable, _ := strategy["unavailable"].(map[string]any); len(unavailable) > 0 {
		t.Errorf("%v is unavailable: %v", name, unavailable)
	}
	for _, store := range strategy["stores"].([]any) {
		deduct := fmt.Sprintf("/stock/deduct/%v?store=%v&goods_id=", name, store)
		sellAtOnce(t, replicas, deduct+"1&count=1&hold_ms=5", deduct+"1&count=1&hold_ms=20&wait_ms=10")
		sellAtOnce(t, replicas[:1], deduct+"3&count=1000000")
		if strategy["idempotent"] == true {
			key := fmt.Sprintf("%v-%v", name, store)
			sendTwice(t, replicas, deduct+"1&count=1", key, 200)
			sendTwice(t, replicas, deduct+"1&count=1000000", key+"-refused", 409)
		}
	}
	for _, store := range strategy["orders"].([]any) {
		body := fmt.Sprintf(`{"lines":[{"goods_id":2,"count":1},{"goods_id":1,"count":2}],"store":%q}`, store)
		status, reply := replicas[0].send("POST", fmt.Sprintf("%s/stock/orders/%v", replicas[0].url, name), body)
		if status != 200 {
			t.Errorf("order by %v on %v: %d %v", name, store, status, reply)
		}
	}
}

// sendTwice sends a request to two replicas with the same key.
func sendTwice(t *testing.T, replicas []*program, path, key string, want int) {
	t.Helper()
	for _, p := range replicas[:2] {
		if status, body := p.call("POST", p.url+path, "Idempotency-Key", key); status != want {
			t.Errorf("%s with key %s answers %d %v, want %d", path, key, status, body, want)
		}
	}
}

// sellAtOnce sends each request several times at once, to all replicas. They are carried out, or refused because there
// is too little stock or the wait was too long.
func sellAtOnce(t *testing.T, replicas []*program, paths ...string) {
	t.Helper()
	var sending sync.WaitGroup
	for range 3 {
		for _, path := range paths {
			for _, p := range replicas {
				sending.Go(func() {
					status, body := p.call("POST", p.url+path)
					refused := strings.HasSuffix(fmt.Sprint(body["type"]), "busy") || status == 409
					if status != 200 && !refused {
						t.Errorf("%s answers %d %v", path, status, body)
					}
				})
			}
		}
	}
	sending.Wait()
}

func (p *program) holdAndCancel(t *testing.T) {
	t.Helper()
	status, body := p.send("POST", p.url+"/stock/reservations", `{"goods_id":1,"count":2,"ttl_ms":60000}`)
	if status != 201 {
		t.Fatalf("hold: %d %v", status, body)
	}
	p.expect(t, "DELETE", fmt.Sprintf("%s/stock/reservations/%v", p.url, body["id"]), 200)
}

// checkRule fails if the rule of docs/accounts.md forbids a command that a script sends.
func checkRule(t *testing.T) {
	t.Helper()
	var permitted []string
	for _, rule := range rules(t, "ACL SETUSER stock ") {
		for word := range strings.FieldsSeq(rule) {
			if command, ok := strings.CutPrefix(word, "+"); ok {
				permitted = append(permitted, command)
			}
		}
	}
	for _, command := range scriptedCommands(t) {
		if !slices.Contains(permitted, command) {
			t.Errorf("a script sends %s, which the rule does not permit", command)
		}
	}
}

var scriptCall = regexp.MustCompile(`redis\.p?call\('([A-Z]+)'`)

// scriptedCommands returns the commands of all scripts, whether or not the test reaches them.
func scriptedCommands(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob("../../internal/*/lua/*.lua")
	more, err2 := filepath.Glob("../../internal/stock/*/lua/*.lua")
	if err := errors.Join(err, err2); err != nil || len(files) == 0 || len(more) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, file := range append(files, more...) {
		text, err := os.ReadFile(file)
		must.Succeed(t, err)
		for _, match := range scriptCall.FindAllStringSubmatch(string(text), -1) {
			names = append(names, strings.ToLower(match[1]))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// mistake is in what the service needs to be let in.
type mistake struct {
	name     string
	settings string // of TLS
	hosts    string // instead of 127.0.0.1
	env      environment
	reasons  map[string]string // for servers: text in the reason on the admin listener; for ZooKeeper, also in the log
}

func (s *secured) mistakes(t *testing.T) []mistake {
	stranger := serverstest.NewCA(t)
	strange := stranger.Issue(t, "stranger")
	return []mistake{
		{
			name: "unknown CA", settings: strings.ReplaceAll(s.client, s.ca.File, stranger.File),
			reasons: map[string]string{
				"mysql": "with ca=FILE", "redis": "with ca=FILE", "etcd": "with ca=FILE", "zookeeper": "with ca=FILE",
			},
		},
		{
			name: "another host", settings: s.client, hosts: "localhost",
			reasons: map[string]string{
				"mysql": "name=HOST", "redis": "name=HOST", "etcd": "name=HOST", "zookeeper": "name=HOST",
			},
		},
		{
			name: "no certificate", settings: "ca=" + s.ca.File,
			reasons: map[string]string{
				"mysql": "a certificate of the client", "redis": "cert=FILE", "etcd": "cert=FILE", "zookeeper": "cert=FILE",
			},
		},
		{
			name: "certificate of another CA", settings: "ca=" + s.ca.File + ",cert=" + strange.Cert + ",key=" + strange.Key,
			reasons: map[string]string{"redis": "certificate of the client", "etcd": "cert"},
		},
		{
			name: "wrong password", settings: s.client,
			env: environment{
				"STOCK_MYSQL_PASSWORD": "not-" + secret, "STOCK_REDIS_PASSWORD": "not-" + secret,
				"STOCK_ETCD_PASSWORD": "not-" + secret, "STOCK_ZOOKEEPER_PASSWORD": secret,
			},
			reasons: map[string]string{"mysql": "the password", "redis": "the password", "etcd": "the password"},
		},
		{
			name: "database of others", settings: s.client,
			env:     environment{"STOCK_MYSQL_DSN": "stock@tcp(" + s.mysql.Addr + ")/mysql"},
			reasons: map[string]string{"mysql": "lacks a permission"},
		},
		{
			name:    "no TLS",
			reasons: map[string]string{"mysql": "requires TLS", "redis": "", "etcd": "", "zookeeper": "no session"},
		},
	}
}

// The reason on the admin listener says what to do. Nothing is sold, and no connection is made without TLS.
func TestAServerThatLetsNobodyInIsReportedWithWhatToDo(t *testing.T) {
	t.Parallel()
	s := newSecured(t)
	env := s.with(s.startMySQL(t), s.startRedis(t, 1), s.startEtcd(t), s.startZooKeeper(t))
	s.migrate(t, env)
	for _, m := range s.mistakes(t) {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			wrong := environment{}
			for name, value := range env {
				switch {
				case strings.HasSuffix(name, "_TLS"):
					value = m.settings
				case m.hosts != "":
					value = strings.ReplaceAll(value, "127.0.0.1", m.hosts)
				}
				wrong[name] = value
			}
			for name := range m.env {
				delete(wrong, name+"_FILE")
			}
			p := launch(t, s.with(wrong, m.env), "serve")
			p.expectReasons(t, m.reasons)
			if log := p.log(); strings.Contains(log, secret) {
				t.Errorf("the log has a password:\n%s", log)
			}
		})
	}
}

// expectReasons waits until /readyz reports each of the servers as down, for reasons that contain the given texts.
func (p *program) expectReasons(t *testing.T, reasons map[string]string) {
	t.Helper()
	for server, want := range reasons {
		p.expectReason(t, server, want)
	}
}

func (p *program) expectReason(t *testing.T, server, want string) {
	t.Helper()
	var got string
	defer func() {
		if t.Failed() {
			t.Logf("the reason is %.800q", got)
		}
	}()
	eventually(t, fmt.Sprintf("%s is down because of %q", server, want), func() bool {
		_, body := p.call("GET", p.admin+"/readyz")
		checks, _ := body["checks"].(map[string]any)
		check, _ := checks[server].(map[string]any)
		reason, _ := check["reason"].(string)
		got = reason
		if server == "zookeeper" {
			got += p.log()
		}
		return reason != "" && strings.Contains(got, want) && !strings.Contains(got, secret)
	})
}

// The accounts may touch nothing without the prefix, except for the key that tells whether etcd answers.
func TestTheDocumentedAccountsSufficeForAServiceWithAKeyPrefix(t *testing.T) {
	t.Parallel()
	s := newSecured(t)
	s.prefix = "shop-7:"
	env := s.with(s.startRedis(t, 1), s.startEtcd(t),
		environment{"STOCK_KEY_PREFIX": s.prefix, "STOCK_MAX_HOLD": "1s"})
	p := launch(t, env, "serve")
	p.awaitReady(t)
	p.setStock(t, 1, 100)
	for _, strategy := range append(sellsInRedis, "lock-etcd") {
		sellAtOnce(t, []*program{p}, inRedis(strategy, 1)+"&hold_ms=5", inRedis(strategy, 1)+"&hold_ms=20&wait_ms=10")
	}
	if log := p.log(); strings.Contains(log, "denied") || strings.Contains(log, "NOPERM") {
		t.Errorf("something was not permitted:\n%s", log)
	}
	delete(env, "STOCK_KEY_PREFIX")
	launch(t, env, "serve").expectReasons(t, map[string]string{"redis": "docs/accounts.md"})
}

func TestOnlyTheAccountMayTouchTheNodesOfItsLocksInZooKeeper(t *testing.T) {
	t.Parallel()
	s := newSecured(t)
	env := s.with(s.startZooKeeper(t), s.startRedis(t, 1))
	p := launch(t, env, "serve")
	p.setStock(t, 1, 10)
	deduct := "/stock/deduct/lock-zookeeper?goods_id=1&count=1&store=redis"
	p.expect(t, "POST", p.url+deduct, 200)

	other, _, err := zk.Connect([]string{s.zk.Addr}, 5*time.Second, zk.WithLogInfo(false))
	must.Succeed(t, err)
	defer other.Close()
	if exists, _, err := other.Exists("/stock"); err != nil || !exists {
		t.Fatalf("there is no node /stock: %v", err)
	}
	if _, _, err := other.Children("/stock"); !errors.Is(err, zk.ErrNoAuth) {
		t.Errorf("another client lists the locks: %v", err)
	}
	if err := other.Delete("/stock/lock-zookeeper:{1}", -1); !errors.Is(err, zk.ErrNoAuth) {
		t.Errorf("another client deletes a queue: %v", err)
	}

	delete(env, "STOCK_ZOOKEEPER_PASSWORD_FILE")
	env["STOCK_ZOOKEEPER_PASSWORD"] = "not-" + secret
	wrong := launch(t, env, "serve")
	status, body := wrong.call("POST", wrong.url+deduct)
	if status != 503 {
		t.Errorf("with a wrong password: %d %v", status, body)
	}
	wrong.expectReasons(t, map[string]string{"zookeeper": "belong to another account"})
}

func TestTheServiceGetsATokenOfEtcdWhenItIsUpAgain(t *testing.T) {
	serverstest.Long(t)
	t.Parallel()
	s := newSecured(t)
	env := s.with(s.startEtcd(t), s.startRedis(t, 1), environment{"STOCK_LEASE": "2s"})
	s.etcd.Kill()
	p := launch(t, env, "serve")
	p.setStock(t, 1, 10)
	for range 2 {
		must.Succeed(t, s.etcd.Restart(t.Context()))
		ctx, status, body := limited(t), 0, map[string]any(nil)
		for status != 200 && ctx.Err() == nil {
			status, body = p.call("POST", p.url+"/stock/deduct/lock-etcd?goods_id=1&count=1&store=redis")
		}
		if status != 200 {
			t.Fatalf("the service does not sell: %d %v\n%s", status, body, p.log())
		}
		p.awaitReady(t)
		must.Succeed(t, s.etcd.Process.Stop(t.Context())) // after SIGTERM, unlike SIGKILL, etcd forgets the token
	}
}

func TestEtcdKnowsTheServiceByItsCertificate(t *testing.T) {
	t.Parallel()
	s := newSecured(t)
	env := s.with(s.startEtcd(t), s.startRedis(t, 1))
	delete(env, "STOCK_ETCD_USER")
	delete(env, "STOCK_ETCD_PASSWORD_FILE")
	p := launch(t, env, "serve")
	p.expectReasons(t, map[string]string{"etcd": "docs/accounts.md"}) // the certificate has another name
	known := s.ca.Issue(t, "stock")
	env["STOCK_ETCD_TLS"] = "ca=" + s.ca.File + ",cert=" + known.Cert + ",key=" + known.Key
	p = launch(t, env, "serve")
	p.setStock(t, 1, 10)
	p.expect(t, "POST", p.url+"/stock/deduct/lock-etcd?goods_id=1&count=1&store=redis", 200)
}

func TestTheAccountsSufficeInARedisClusterAndBehindSentinelsWithTLSAlsoAfterAFailover(t *testing.T) {
	serverstest.Long(t)
	t.Parallel()
	t.Run("Cluster", func(t *testing.T) {
		t.Parallel()
		s := newSecured(t)
		cluster, err := servers.StartRedisCluster(t.Context(), servers.RedisClusterOptions{Replicas: true, TLS: &s.server})
		must.Succeed(t, err)
		serverstest.StopAfterTest(t, cluster)
		p := s.sellInRedis(t, slices.Concat(cluster.Masters, cluster.Replicas), nil,
			environment{"STOCK_REDIS": strings.Join(cluster.TLSAddrs, ",")})
		cluster.Masters[0].Kill()
		p.sellAgain(t)
	})
	t.Run("Sentinel", func(t *testing.T) {
		t.Parallel()
		s := newSecured(t)
		group, err := servers.StartRedisSentinel(t.Context(), servers.RedisSentinelOptions{Sentinels: 2, TLS: &s.server})
		must.Succeed(t, err)
		serverstest.StopAfterTest(t, group)
		for _, sentinel := range group.Sentinels {
			serverstest.SetUser(t, &redis.Options{Addr: sentinel.Addr}, rules(t, "ACL SETUSER stock_sentinel "))
		}
		p := s.sellInRedis(t, []*servers.Redis{group.Master, group.Replica}, group.Sentinels, environment{
			"STOCK_REDIS": strings.Join(group.SentinelAddrs, ","), "STOCK_REDIS_MASTER": group.MasterName,
			"STOCK_REDIS_SENTINEL_USER": "stock_sentinel", "STOCK_REDIS_SENTINEL_PASSWORD": secret,
		})
		group.Master.Kill()
		p.sellAgain(t)
	})
}

// sellInRedis sells nine items, which are on every master of a Cluster, and fails if a server has refused a command.
func (s *secured) sellInRedis(t *testing.T, stores, sentinels []*servers.Redis, env environment) *program {
	t.Helper()
	for _, server := range stores {
		serverstest.SetUser(t, &redis.Options{Addr: server.Addr}, s.redisRules(t))
	}
	p := launch(t, s.with(env, environment{"STOCK_REDIS_USER": "stock", "STOCK_REDIS_TLS": s.client}), "serve")
	p.awaitReady(t)
	for item := range int64(9) {
		p.setStock(t, item+1, 100)
		for _, strategy := range sellsInRedis {
			p.expect(t, "POST", p.url+inRedis(strategy, item+1), 200)
		}
	}
	for _, server := range slices.Concat(stores, sentinels) {
		refused, err := serverstest.RedisClient(t, &redis.Options{Addr: server.Addr}).ACLLog(t.Context(), 10).Result()
		if err != nil || len(refused) > 0 {
			t.Errorf("%s refused %+v, %v", server.Name, refused, err)
		}
	}
	return p
}

// sellAgain waits until every item is sold by every strategy.
func (p *program) sellAgain(t *testing.T) {
	t.Helper()
	for item := range int64(9) {
		for _, strategy := range sellsInRedis {
			eventually(t, fmt.Sprintf("item %d is sold by %s", item+1, strategy), func() bool {
				status, _ := p.call("POST", p.url+inRedis(strategy, item+1))
				return status == 200
			})
		}
	}
}

var sellsInRedis = []string{"redis-script", "lock-redis-queue", "lock-redis-pubsub"}

func inRedis(strategy string, item int64) string {
	return fmt.Sprintf("/stock/deduct/%s?goods_id=%d&count=1&store=redis", strategy, item)
}
