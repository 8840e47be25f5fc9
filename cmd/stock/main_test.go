package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"stock/internal/servers/serverstest"
	"stock/internal/stock/catalogue"
)

var shared serverstest.Servers

// asProgram makes the test binary run as the program, so that tests see real signals and exit codes.
const asProgram = "STOCK_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	os.Exit(shared.Run(m))
}

// environment replaces os.Getenv.
type environment map[string]string

func (e environment) get(name string) string { return e[name] }

// command runs the program inside the test.
func command(t *testing.T, env environment, args ...string) (stdout string, err error) {
	t.Helper()
	var out bytes.Buffer
	err = run(t.Context(), args, env.get, &out, io.Discard)
	return out.String(), err
}

// refused runs a command that must fail at once, and returns what it prints. The context has ended, so that a service
// that starts nevertheless stops at once.
func refused(t *testing.T, env environment, args ...string) (text string, err error) {
	t.Helper()
	ended, end := context.WithCancel(t.Context())
	end()
	return printed(ended, env, args...)
}

// printed returns everything that a command prints, including its error.
func printed(ctx context.Context, env environment, args ...string) (text string, err error) {
	var out bytes.Buffer
	err = run(ctx, args, env.get, &out, &out)
	return fmt.Sprint(out.String(), err), err
}

var wrongConfigurations = []struct {
	name string
	env  environment
	args []string
	want []string // parts of the error
}{
	{name: "unknown command", args: []string{"sevre"}, want: []string{"sevre", "stock --help"}},
	{name: "argument", args: []string{"serve", "now"}, want: []string{"now", "serve --help"}},
	{
		name: "unknown flag", args: []string{"serve", "--lissen=:1"},
		want: []string{"--lissen", "serve --help", `"--listen"?`},
	},
	{name: "mistyped command", args: []string{"serv"}, want: []string{`"serv": did you mean "serve"?; see stock --help`}},
	{name: "flag of another type", args: []string{"serve", "--lease=long"}, want: []string{"--lease", "long"}},
	{
		name: "variable of another type", env: environment{"STOCK_LEASE": "long"}, args: []string{"serve"},
		want: []string{"STOCK_LEASE", "duration"},
	},
	{
		name: "address without a port", args: []string{"serve", "--listen=localhost"},
		want: []string{"--listen", "localhost", "host:port"},
	},
	{
		name: "address with a bad port", args: []string{"serve", "--listen=localhost:99999"},
		want: []string{"--listen", "99999"},
	},
	{
		name: "address in the environment", env: environment{"STOCK_ADMIN_LISTEN": "localhost"},
		args: []string{"serve"}, want: []string{"--admin-listen"},
	},
	{
		name: "bad DSN", args: []string{"serve", "--mysql-dsn=root:secret@tcp(localhost:1/stock"},
		want: []string{"--mysql-dsn", "user:password@tcp"},
	},
	{
		name: "DSN without a database", args: []string{"serve", "--mysql-dsn=root:secret@tcp(127.0.0.1:1)/"},
		want: []string{"--mysql-dsn", "no database"},
	},
	{
		name: "DSN with a bad parameter",
		env:  environment{"STOCK_MYSQL_DSN": "root:secret@tcp(127.0.0.1:1)/stock?timeout=x"},
		args: []string{"serve"}, want: []string{"--mysql-dsn"},
	},
	{
		name: "DSN without a protocol and an @", args: []string{"serve", "--mysql-dsn=root:secret/stock"},
		want: []string{"--mysql-dsn", "user:password@tcp"},
	},
	{
		name: "DSN with a password as protocol",
		args: []string{"serve", "--mysql-dsn=root:secret:tcp(h:1)/stock"},
		want: []string{"--mysql-dsn", "user:password@tcp"},
	},
	{
		name: "DSN with a password as address",
		args: []string{"serve", "--mysql-dsn=root@tcp(root:secret)/stock"},
		want: []string{"--mysql-dsn", "user:password@tcp"},
	},
	{
		name: "DSN with a password as database",
		args: []string{"serve", "--mysql-dsn=tcp(h:1)/root:secret@stock"},
		want: []string{"--mysql-dsn", "no database"},
	},
	{
		name: "DSN of another protocol", args: []string{"migrate", "--mysql-dsn=root:secret@udp(h:1)/stock"},
		want: []string{"--mysql-dsn", "user:password@tcp"},
	},
	{
		name: "DSN without a slash", args: []string{"migrate", "--mysql-dsn=root:secret@tcp(h:1)"},
		want: []string{"--mysql-dsn", "user:password@tcp"},
	},
	{
		name: "DSN with TLS of an unknown name",
		args: []string{"migrate", "--mysql-dsn=root@tcp(h:1)/stock?tls=secret"},
		want: []string{"--mysql-dsn", "unknown value for tls", "true, false, skip-verify or preferred"},
	},
	{
		name: "DSN with a blank before the host", args: []string{"serve", "--mysql-dsn=root:secret@tcp( h:1)/stock"},
		want: []string{"--mysql-dsn", "user:password@tcp"},
	},
	{name: "bad Redis address", args: []string{"serve", "--redis=127.0.0.1"}, want: []string{"--redis", "host:port"}},
	{
		name: "Redis URL with a password", args: []string{"serve", "--redis=redis://:secret@h:1"},
		want: []string{"--redis", "host:port", "STOCK_REDIS_PASSWORD"},
	},
	{
		name: "master with a password", args: []string{"serve", "--redlock=a:1,b:1,secret@c:1"},
		want: []string{"--redlock", "host:port", "STOCK_REDIS_PASSWORD"},
	},
	{
		name: "one bad address of a Redis Cluster", args: []string{"serve", "--redis=a:1,b"},
		want: []string{"--redis", `"b"`, "host:port"},
	},
	{
		name: "a Redis Cluster with the same server twice", env: environment{"STOCK_REDIS": "a:1,a:1"},
		args: []string{"migrate", "--mysql-dsn=root@tcp(h:1)/stock"}, want: []string{"--redis", "a:1 twice"},
	},
	{
		name: "a master without Sentinels", args: []string{"serve", "--redis-master=stock"},
		want: []string{"--redis-master", "Sentinels"},
	},
	{
		name: "TiDB without a server", args: []string{"serve", "--tidb"},
		want: []string{"--tidb", "--mysql-dsn"},
	},
	{
		name: "a Redis replica without Redis", args: []string{"serve", "--redis-replica"},
		want: []string{"--redis-replica", "--redis"},
	},
	{
		name: "bad etcd address", args: []string{"serve", "--etcd=http://127.0.0.1:2379"},
		want: []string{"--etcd", "host:port"},
	},
	{
		name: "bad ZooKeeper address", env: environment{"STOCK_ZOOKEEPER": "a:2181,b"}, args: []string{"serve"},
		want: []string{"--zookeeper", "host:port"},
	},
	{
		name: "TLS of a mistyped setting", args: []string{"serve", "--etcd=h:1", "--etcd-tls=cacert=x"},
		want: []string{"--etcd-tls", "ca=FILE"},
	},
	{
		name: "TLS with a CA that cannot be read", env: environment{"STOCK_MYSQL_TLS": "ca=/no/such/file"},
		args: []string{"migrate", "--mysql-dsn=root@tcp(h:1)/stock"}, want: []string{"--mysql-tls", "/no/such/file"},
	},
	{
		name: "TLS in the DSN and in the flag",
		args: []string{"serve", "--mysql-tls=on", "--mysql-dsn=root@tcp(h:1)/stock?tls=preferred"},
		want: []string{"--mysql-dsn", "--mysql-tls", "remove one"},
	},
	{
		name: "TLS that may fall back to plaintext",
		args: []string{"serve", "--mysql-tls=on", "--mysql-dsn=root@tcp(h:1)/stock?allowFallbackToPlaintext=true"},
		want: []string{"allowFallbackToPlaintext", "--mysql-tls", "remove one"},
	}, {
		name: "TLS through a socket", args: []string{"serve", "--mysql-tls=on", "--mysql-dsn=root@unix(/tmp/s)/stock"},
		want: []string{"--mysql-tls", "socket"},
	},
	{
		name: "two passwords of MySQL", env: environment{"STOCK_MYSQL_PASSWORD": "secret"},
		args: []string{"prune", "--older-than=1h", "--mysql-dsn=root:secret@tcp(h:1)/stock"},
		want: []string{"--mysql-dsn", "STOCK_MYSQL_PASSWORD", "remove one"},
	},
	{
		name: "password in a missing file", env: environment{"STOCK_REDIS_PASSWORD_FILE": "/no/such/file"},
		args: []string{"reconcile"}, want: []string{"STOCK_REDIS_PASSWORD_FILE", "/no/such/file"},
	},
	{
		name: "password in the environment and in a file",
		env:  environment{"STOCK_ETCD_PASSWORD": "secret", "STOCK_ETCD_PASSWORD_FILE": "/no/such/file"},
		args: []string{"serve"}, want: []string{"STOCK_ETCD_PASSWORD", "both"},
	},
	{
		name: "user of Redis without a password", args: []string{"serve", "--redis=h:1", "--redis-user=stock"},
		want: []string{"--redis-user", "STOCK_REDIS_PASSWORD", "_FILE"},
	},
	{
		name: "user of Sentinels without Sentinels", env: environment{"STOCK_REDIS_SENTINEL_PASSWORD": "secret"},
		args: []string{"serve", "--redis=h:1", "--redis-sentinel-user=stock"},
		want: []string{"--redis-sentinel-user", "--redis-master"},
	},
	{
		name: "TLS of Redis without Redis", args: []string{"serve", "--redis-tls=on"},
		want: []string{"--redis-tls", "--redis"},
	},
	{
		name: "password of etcd without a user", env: environment{"STOCK_ETCD_PASSWORD": "secret"},
		args: []string{"serve", "--etcd=h:1"}, want: []string{"STOCK_ETCD_PASSWORD", "--etcd-user"},
	},
	{
		name: "password of ZooKeeper without a user", env: environment{"STOCK_ZOOKEEPER_PASSWORD": "secret"},
		args: []string{"serve", "--zookeeper=h:1"}, want: []string{"STOCK_ZOOKEEPER_PASSWORD", "--zookeeper-user"},
	},
	{name: "too few masters", args: []string{"serve", "--redlock=a:1"}, want: []string{"--redlock", "at least 3"}},
	{
		name: "an even number of masters", args: []string{"serve", "--redlock=a:1,b:1,c:1,d:1"},
		want: []string{"--redlock has 4", "odd"},
	},
	{
		name: "the same master twice", args: []string{"serve", "--redlock=a:1,b:1,a:1"},
		want: []string{"--redlock", "a:1 twice"},
	},
	{
		name: "unknown strategy", args: []string{"serve", "--default-strategy=hope"},
		want: []string{"--default-strategy", `"hope"`, "noop", "for-update"},
	},
	{
		name: "no connections", args: []string{"serve", "--mysql-conns=0"},
		want: []string{"--mysql-conns", "at least 1"},
	},
	{
		name: "no connections for locks", args: []string{"serve", "--mysql-lock-conns=0"},
		want: []string{"--mysql-lock-conns is 0", "at least 1"},
	},
	{
		name: "lease longer than a session of ZooKeeper",
		args: []string{"serve", "--lease=41s", "--zookeeper=127.0.0.1:1"},
		want: []string{"--lease is 41s", "--zookeeper", "at most 40s"},
	},
	{
		name: "lease that is too short", args: []string{"serve", "--lease=99ms"},
		want: []string{"--lease is 99ms", "at least 100ms"},
	},
	{
		name: "answers that Redis would forget at once", args: []string{"serve", "--key-ttl=999us"},
		want: []string{"--key-ttl is 999", "at least 1ms"},
	},
	{
		name: "refusals that Redis would forget at once", args: []string{"serve", "--sold-out-retention=1us"},
		want: []string{"--sold-out-retention is 1", "at least 1ms"},
	},
	{
		name: "poll that is not shorter than the lease", args: []string{"serve", "--lease=1s", "--poll=1s"},
		want: []string{"--poll", "--lease"},
	},
	{
		name: "sessions that end during a request", args: []string{"serve", "--mysql-idle-timeout=15s"},
		want: []string{"--mysql-idle-timeout", "--request-timeout"},
	},
	{
		name: "lock wait that is not shorter than the request timeout", args: []string{"serve", "--lock-wait=15s"},
		want: []string{"--lock-wait", "--request-timeout"},
	},
	{
		name: "no request timeout", args: []string{"serve", "--request-timeout=0s"},
		want: []string{"--request-timeout", "above 0"},
	},
	{name: "negative delay", args: []string{"serve", "--drain-delay=-1s"}, want: []string{"--drain-delay"}},
	{
		name: "TTL beyond the limit", args: []string{"serve", "--max-ttl=721h"},
		want: []string{"--max-ttl is 721h0m0s", "100ms to 720h0m0s"},
	},
	{
		name: "no retention of reservations", args: []string{"serve", "--reservation-retention=0s"},
		want: []string{"--reservation-retention is 0s"},
	},
	{name: "negative hold", args: []string{"serve", "--max-hold=-1s"}, want: []string{"--max-hold is -1s"}},
	{
		name: "hold beyond the limit", args: []string{"serve", "--max-hold=11s"},
		want: []string{"--max-hold is 11s", "0 to 10s"},
	},
	{
		name: "name of the admin listener with a port",
		args: []string{"serve", "--admin-names", "stock.example.com:9090"},
		want: []string{"--admin-names", "stock.example.com:9090", "without a port"},
	},
	{
		name: "unknown log format", args: []string{"serve", "--log-format=xml"},
		want: []string{"--log-format", "text or json"},
	},
	{name: "unknown log level", args: []string{"serve", "--log-level=loud"}, want: []string{"--log-level", "debug"}},
	{
		name: "prune without a database", args: []string{"prune", "--older-than=24h"},
		want: []string{"--mysql-dsn is missing"},
	},
	{
		name: "prune without an age", args: []string{"prune", "--mysql-dsn=root@tcp(h:1)/stock"},
		want: []string{"--older-than is missing"},
	},
	{
		name: "reconcile with one store", env: environment{"STOCK_REDIS": "h:1"}, args: []string{"reconcile"},
		want: []string{"--mysql-dsn and --redis"},
	},
	{name: "migrate without a database", args: []string{"migrate"}, want: []string{"--mysql-dsn is missing"}},
	{
		name: "migrate with a bad Redis address",
		args: []string{"migrate", "--mysql-dsn=root:secret@tcp(127.0.0.1:1)/stock", "--redis=x"},
		want: []string{"--redis"},
	},
	{name: "healthcheck with a bad URL", args: []string{"healthcheck", "--url=localhost"}, want: []string{"--url"}},
	{
		name: "healthcheck without a host", args: []string{"healthcheck", "--url=http://"},
		want: []string{"--url", "http://127.0.0.1:8080"},
	},
	{
		name: "healthcheck with a password", args: []string{"healthcheck", "--url=http://root:secret@127.0.0.1:1"},
		want: []string{"--url", "without a user or a password"},
	},
	{
		name: "healthcheck with a password in a malformed URL",
		args: []string{"healthcheck", "--url=http://root:secret@127.0.0.1:x"},
		want: []string{"--url", "http://127.0.0.1:8080"},
	},
	{
		name: "healthcheck with a password and no scheme", args: []string{"healthcheck", "--url=root:secret@127.0.0.1:1"},
		want: []string{"--url", "http://127.0.0.1:8080"},
	},
	{
		name: "healthcheck with another scheme", args: []string{"healthcheck", "--url=ftp://127.0.0.1:1"},
		want: []string{"--url", "http://127.0.0.1:8080"},
	},
}

func TestAServerAddressThatCannotConnectIsRefused(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{"redis", "redlock", "etcd", "zookeeper"} {
		for name, bad := range map[string]string{
			"leading blank": " d:1", "trailing blank": "d :1", "tab": "\td:1", "blank port": "d: 1",
			"no host": ":1", "port 0": "d:0", "empty": "",
		} {
			t.Run(flag+" with "+name, func(t *testing.T) {
				t.Parallel()
				_, err := refused(t, nil, "serve", "--"+flag+"=a:1,"+bad+",c:1")
				if quoted := fmt.Sprintf("--%s is %q", flag, bad); exitCode(err) != 2 || !strings.Contains(err.Error(), quoted) {
					t.Errorf("%v, want exit code 2 and %s", err, quoted)
				}
			})
		}
	}
}

func TestAListenerWithABlankInItsAddressIsRefused(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{"listen", "admin-listen"} {
		_, err := refused(t, nil, "serve", "--"+flag, " 127.0.0.1:0")
		if exitCode(err) != 2 || !strings.Contains(err.Error(), "--"+flag+` is " 127.0.0.1:0"`) {
			t.Errorf("--%s: %v, want exit code 2", flag, err)
		}
	}
}

func TestWrongConfigurationIsOneClearLineAndExitCode2(t *testing.T) {
	t.Parallel()
	for _, test := range wrongConfigurations {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			text, err := refused(t, test.env, test.args...)
			if exitCode(err) != 2 {
				t.Fatalf("exit code %d: %v", exitCode(err), err)
			}
			for _, part := range test.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("the error is %q, want %q in it", err, part)
				}
			}
			if strings.Contains(text, "\n") || text != err.Error() {
				t.Errorf("more than one line: %q", text)
			}
			if strings.Contains(text, "secret") {
				t.Errorf("%q shows the password", text)
			}
		})
	}
}

// The errors of the driver and the server about a refused connection are printed. They must not contain the password.
func TestNoPasswordIsPrintedWhenAConnectionIsRefused(t *testing.T) {
	t.Parallel()
	config, err := mysql.ParseDSN(shared.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	for name, address := range map[string]string{"wrong password": config.Addr, "closed port": closedAddress(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := environment{
				"STOCK_MYSQL_DSN": "root:secret@" + config.Net + "(" + address + ")/stock",
				"STOCK_LOG_LEVEL": "debug",
			}
			if text, err := printed(t.Context(), env, "migrate"); exitCode(err) != 1 || strings.Contains(text, "secret") {
				t.Errorf("migrate prints %q", text)
			}
			p := launch(t, env, "serve")
			p.expect(t, "GET", p.url+"/readyz", 503)
			_, body := p.call("POST", p.url+"/stock/deduct/update?goods_id=1&count=1")
			_, reasons := p.call("GET", p.admin+"/readyz")
			if text := fmt.Sprint(body, reasons, p.log()); strings.Contains(text, "secret") || !strings.Contains(text, "mysql") {
				t.Errorf("serve prints %q", text)
			}
		})
	}
}

func TestFlagWinsOverEnvironment(t *testing.T) {
	t.Parallel()
	alive := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer alive.Close()
	if _, err := command(t, environment{"STOCK_URL": alive.URL}, "healthcheck"); err != nil {
		t.Errorf("the environment is not read: %v", err)
	}
	if _, err := command(t, environment{"STOCK_URL": "nonsense"}, "healthcheck", "--url", alive.URL); err != nil {
		t.Errorf("the flag does not win: %v", err)
	}
}

func TestHelpListsTheVariables(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][]string{
		"serve": {
			"Addresses:", "Servers:", "Strategies:", "Limits:", "[STOCK_LISTEN]", "[STOCK_MYSQL_DSN]",
			`(default "127.0.0.1:8080")`, "[STOCK_DEFAULT_STRATEGY]", "[STOCK_DRAIN_TIMEOUT]", "[STOCK_MAX_HOLD]",
			"(default 10s)", "STOCK_REDIS_PASSWORD", "[STOCK_MYSQL_TLS]", "[STOCK_ZOOKEEPER_USER]", "STOCK_ETCD_PASSWORD",
		},
		"migrate":     {"[STOCK_MYSQL_DSN]", "[STOCK_REDIS]", "[STOCK_REDIS_TLS]", "STOCK_MYSQL_PASSWORD"},
		"reconcile":   {"[STOCK_MYSQL_DSN]", "[STOCK_REDIS]", "[STOCK_GOODS]", "--mend", "What nobody can prove"},
		"healthcheck": {"[STOCK_URL]"},
	} {
		help, err := command(t, nil, name, "--help")
		if err != nil {
			t.Error(err)
		}
		for _, part := range want {
			if !strings.Contains(help, part) {
				t.Errorf("the help of %s lacks %q", name, part)
			}
		}
	}
}

func TestVersionNamesModuleRevisionAndGo(t *testing.T) {
	t.Parallel()
	out, err := command(t, nil, "version")
	if err != nil || !regexp.MustCompile(`^stock \S+, revision .+, go1\.\S+\n$`).MatchString(out) {
		t.Errorf("%q, %v", out, err)
	}
}

// An image is built without the repository, so the Go command cannot record the revision.
func TestVersionHasTheRevisionThatTheDockerfilePasses(t *testing.T) {
	t.Parallel()
	dockerfile, err := os.ReadFile("../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	flag := regexp.MustCompile(`-X \S+=\$\{REVISION\}`).FindString(string(dockerfile))
	binary := filepath.Join(t.TempDir(), "stock")
	for revision, want := range map[string]string{"0123abc": "0123abc", "0123abc+dirty": "0123abc with changes"} {
		stamp := "-ldflags=" + strings.ReplaceAll(flag, "${REVISION}", revision)
		build := exec.Command("go", "build", "-buildvcs=false", stamp, "-o", binary, ".")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		out, err := exec.Command(binary, "version").Output()
		if err != nil || !strings.Contains(string(out), ", revision "+want+", ") {
			t.Errorf("%q, %v", out, err)
		}
	}
}

// The environment may forbid the Go command to record the revision.
func TestMakeBuildsWithTheRevision(t *testing.T) {
	t.Parallel()
	head, err := exec.Command("git", "rev-parse", "HEAD").Output()
	if err != nil {
		t.Skipf("this is not a git checkout: %v", err)
	}
	dry := exec.Command("make", "--dry-run", "build")
	dry.Dir = "../.."
	out, err := dry.CombinedOutput()
	if want := "-X main.revision=" + strings.TrimSpace(string(head)); err != nil || !strings.Contains(string(out), want) {
		t.Errorf("make build runs %s, %v, want %s", out, err, want)
	}
}

func TestCompletionKnowsTheStrategies(t *testing.T) {
	t.Parallel()
	out, err := command(t, nil, "__complete", "serve", "--default-strategy", "")
	if err != nil || !strings.Contains(out, catalogue.Strategies[0].Name+"\t"+catalogue.Strategies[0].Summary) {
		t.Errorf("%q, %v", out, err)
	}
}

func TestMigrateIsSafeForReplicasThatStartTogether(t *testing.T) {
	t.Parallel()
	env := environment{"STOCK_MYSQL_DSN": shared.Database(t)}
	const replicas = 4
	outs, errs := make([]string, replicas), make([]error, replicas)
	var wg sync.WaitGroup
	for i := range replicas {
		wg.Go(func() { outs[i], errs[i] = command(t, env, "migrate") })
	}
	wg.Wait()
	applied := 0
	for i := range replicas {
		if errs[i] != nil || !strings.Contains(outs[i], "is up to date") {
			t.Errorf("replica %d: %q, %v", i, outs[i], errs[i])
		}
		applied += strings.Count(outs[i], "applied 00001_good_stock.sql")
	}
	if applied != 1 {
		t.Errorf("the first migration was applied %d times", applied)
	}
}

func TestMigrateCopiesTheFirstItemToRedisOnce(t *testing.T) {
	t.Parallel()
	server := serverstest.StartRedis(t, redisOptions)
	env := environment{"STOCK_MYSQL_DSN": shared.Database(t), "STOCK_REDIS": server.Addr}
	if _, err := command(t, env, "migrate"); err != nil {
		t.Fatal(err)
	}
	p := launch(t, env, "serve", "--default-strategy=lock-redis-lua")
	p.expect(t, "POST", p.url+"/stock/deduct?goods_id=1&count=1&store=redis", 200)
	if _, err := command(t, env, "migrate"); err != nil {
		t.Fatal(err)
	}
	if got := p.expect(t, "GET", p.url+"/stock/1?store=redis", 200); got["stock"] != 5999.0 {
		t.Errorf("%v units, want the 5999 that were left before the second migration", got["stock"])
	}
}

// Units may have been sold since the first migration.
func TestMigrateCopiesTheCurrentStockToARedisThatLostItsData(t *testing.T) {
	t.Parallel()
	env, client := streamed(t, redisOptions)
	p := launch(t, env, "serve")
	p.expect(t, "POST", p.url+"/stock/deduct/redis-stream?goods_id=1&count=5", 200)
	eventually(t, "the sale is in MySQL", func() bool { return p.backlog(t) == "0" })
	if err := client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := command(t, env, "migrate"); err != nil {
		t.Fatal(err)
	}
	if got := p.expect(t, "GET", p.url+"/stock/1?store=redis", 200); got["stock"] != 5995.0 {
		t.Errorf("%v units, want the 5995 that MySQL has", got["stock"])
	}
	p.expect(t, "POST", p.url+"/stock/deduct/redis-stream?goods_id=1&count=5", 200)
	eventually(t, "the sale is in MySQL", func() bool { return p.backlog(t) == "0" })
	if out, err := command(t, env, "reconcile"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestMigrateFailsIfTheDatabaseIsDown(t *testing.T) {
	t.Parallel()
	_, err := command(t, nil, "migrate", "--mysql-dsn=root:secret@tcp("+closedAddress(t)+")/stock")
	if exitCode(err) != 1 || !strings.Contains(err.Error(), "migrate database stock at 127.0.0.1:") ||
		strings.Contains(err.Error(), "secret") {
		t.Errorf("%v", err)
	}
}

// closedAddress returns an address that refuses connections.
func closedAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

func TestHealthcheck(t *testing.T) {
	t.Parallel()
	p := launch(t, environment{"STOCK_MYSQL_DSN": "root@tcp(" + closedAddress(t) + ")/stock"}, "serve")
	if _, err := command(t, nil, "healthcheck", "--url", p.url); err != nil {
		t.Errorf("alive: %v", err)
	}
	_, err := command(t, nil, "healthcheck", "--url", p.url, "--ready")
	if exitCode(err) != 1 || !strings.Contains(err.Error(), "503") {
		t.Errorf("not ready: %v", err)
	}
	if _, err := command(t, nil, "healthcheck", "--url", "http://"+closedAddress(t)); exitCode(err) != 1 {
		t.Errorf("dead: %v", err)
	}
}

// program is a process that runs the program.
type program struct {
	cmd        *exec.Cmd
	url, admin string
	log        func() string
	exited     chan struct{} // closed when the process has ended
	err        error         // of Wait; set when exited is closed
}

// launch starts the program on free ports and waits until it serves. It is killed after the test.
func launch(t *testing.T, env environment, args ...string) *program {
	t.Helper()
	p := &program{cmd: exec.Command(os.Args[0], args...), exited: make(chan struct{})}
	p.cmd.Env = []string{
		asProgram + "=1", "STOCK_LISTEN=127.0.0.1:0", "STOCK_ADMIN_LISTEN=127.0.0.1:0", "STOCK_LOG_FORMAT=json",
	}
	for name, value := range env {
		p.cmd.Env = append(p.cmd.Env, name+"="+value)
	}
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.exited
	})

	serving := make(chan struct{})
	var mu sync.Mutex
	var text strings.Builder
	p.log = func() string {
		mu.Lock()
		defer mu.Unlock()
		return text.String()
	}
	go func() {
		defer close(p.exited)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			mu.Lock()
			text.WriteString(lines.Text() + "\n")
			mu.Unlock()
			var line struct {
				Msg   string `json:"msg"`
				URL   string `json:"url"`
				Admin string `json:"admin_url"`
			}
			if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "serving" {
				p.url, p.admin = line.URL, line.Admin
				close(serving)
			}
		}
		p.err = p.cmd.Wait()
	}()
	select {
	case <-serving:
	case <-p.exited:
		t.Fatalf("the program did not start: %v\n%s", p.err, p.log())
	case <-time.After(20 * time.Second):
		t.Fatalf("the program does not serve:\n%s", p.log())
	}
	return p
}

// call returns status 0 if there is no reply.
func (p *program) call(method, url string, header ...string) (status int, body map[string]any) {
	return p.send(method, url, "", header...)
}

// send is call with a body in JSON, or without one if it is empty.
func (p *program) send(method, url, content string, header ...string) (status int, body map[string]any) {
	request, err := http.NewRequestWithContext(context.Background(), method, url, strings.NewReader(content))
	if err != nil {
		return 0, nil
	}
	if content != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, nil
	}
	defer response.Body.Close()
	_ = json.NewDecoder(response.Body).Decode(&body)
	return response.StatusCode, body
}

func (p *program) expect(t *testing.T, method, url string, status int) map[string]any {
	t.Helper()
	got, body := p.call(method, url)
	if got != status {
		t.Fatalf("%s %s answers %d %v, want %d", method, url, got, body, status)
	}
	return body
}

func (p *program) setStock(t *testing.T, goodsID, units int64) {
	t.Helper()
	url := fmt.Sprintf("%s/admin/stock/%d", p.admin, goodsID)
	body := strings.NewReader(fmt.Sprintf(`{"stock":%d}`, units))
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url, body)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Fatalf("set the stock: %s", response.Status)
	}
}

func (p *program) signal(t *testing.T, signal os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
}

// wait waits for the end of the program.
func (p *program) wait(t *testing.T) *os.ProcessState {
	t.Helper()
	select {
	case <-p.exited:
	case <-time.After(20 * time.Second):
		t.Fatalf("the program does not end:\n%s", p.log())
	}
	return p.cmd.ProcessState
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited 20 s for this: %s", what)
		}
	}
}
