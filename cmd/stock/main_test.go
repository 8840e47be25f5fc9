package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
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

	"stock/internal/must"
	"stock/internal/servers/serverstest"
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

// wrongConfigurations are commands, after variables of the environment, and parts of their errors.
var wrongConfigurations = [][]string{
	{"sevre", "sevre", "stock --help"},
	{"serv", `"serv": did you mean "serve"?; see stock --help`},
	{"serve now", "now", "serve --help"},
	{"serve --lissen=:1", "--lissen", "serve --help", `"--listen"?`},
	{"serve --lease=long", "--lease", "long"},
	{"STOCK_LEASE=long serve", "STOCK_LEASE", "duration"},
	{"serve --listen=localhost", "--listen", "localhost", "host:port"},
	{"serve --listen=localhost:99999", "--listen", "99999"},
	{"STOCK_ADMIN_LISTEN=localhost serve", "--admin-listen"},
	{"serve --admin-names=stock.example.com:9090", "--admin-names", "stock.example.com:9090", "without a port"},

	{"serve --mysql-dsn=root:secret@tcp(localhost:1/stock", "--mysql-dsn", "user:password@tcp"},
	{"serve --mysql-dsn=root:secret@tcp(h:1)/", "--mysql-dsn", "no database"},
	{"serve --mysql-dsn=tcp(h:1)/root:secret@stock", "--mysql-dsn", "no database"},
	{"migrate --mysql-dsn=root:secret@tcp(h:1)", "--mysql-dsn", "user:password@tcp"},
	{"serve --mysql-tls=on --mysql-dsn=root@tcp(h:1)/stock?tls=preferred", "--mysql-dsn", "--mysql-tls", "remove one"},
	{"serve --redis=redis://:secret@h:1", "--redis", "host:port", "STOCK_REDIS_PASSWORD"},
	{"STOCK_REDIS=a:1,a:1 migrate --mysql-dsn=root@tcp(h:1)/stock", "--redis", "a:1 twice"},
	{"migrate --mysql-dsn=root:secret@tcp(h:1)/stock --redis=x", "--redis"},
	{"serve --redis-master=stock", "--redis-master", "Sentinels"},
	{"serve --redis-replica", "--redis-replica needs --redis"},
	{"serve --redis-tls=on", "--redis-tls needs --redis"},
	{"serve --tidb", "--tidb needs --mysql-dsn"},
	{"serve --redlock=a:1", "--redlock", "at least 3"},
	{"serve --redlock=a:1,b:1,c:1,d:1", "--redlock has 4", "odd"},
	{"serve --redlock=a:1,b:1,secret@c:1", "--redlock", "host:port", "STOCK_REDIS_PASSWORD"},
	{"serve --etcd=http://127.0.0.1:2379", "--etcd", "host:port"},
	{"STOCK_ZOOKEEPER=a:2181,b serve", "--zookeeper", "host:port"},
	{"serve --key-prefix=Shop", "--key-prefix", "lower-case"},

	{"serve --etcd=h:1 --etcd-tls=cacert=x", "--etcd-tls", "ca=FILE"},
	{"STOCK_MYSQL_TLS=ca=/no/such migrate --mysql-dsn=root@tcp(h:1)/stock", "--mysql-tls", "/no/such"},
	{
		"STOCK_MYSQL_PASSWORD=secret prune --older-than=1h --mysql-dsn=root:secret@tcp(h:1)/stock",
		"--mysql-dsn", "STOCK_MYSQL_PASSWORD", "remove one",
	},
	{"STOCK_REDIS_PASSWORD_FILE=/no/such reconcile", "STOCK_REDIS_PASSWORD_FILE", "/no/such"},
	{"STOCK_ETCD_PASSWORD=secret STOCK_ETCD_PASSWORD_FILE=/no/such serve", "STOCK_ETCD_PASSWORD", "both"},
	{"serve --redis=h:1 --redis-user=stock", "--redis-user", "STOCK_REDIS_PASSWORD", "_FILE"},
	{
		"STOCK_REDIS_SENTINEL_PASSWORD=secret serve --redis=h:1 --redis-sentinel-user=stock",
		"--redis-sentinel-user", "--redis-master",
	},
	{"STOCK_ETCD_PASSWORD=secret serve --etcd=h:1", "STOCK_ETCD_PASSWORD", "--etcd-user"},
	{"STOCK_ZOOKEEPER_PASSWORD=secret serve --zookeeper=h:1", "STOCK_ZOOKEEPER_PASSWORD", "--zookeeper-user"},

	{"serve --default-strategy=hope", "--default-strategy", `"hope"`, "noop", "for-update"},
	{"serve --mysql-conns=0", "--mysql-conns", "at least 1"},
	{"serve --mysql-lock-conns=0", "--mysql-lock-conns is 0", "at least 1"},
	{"serve --lease=41s --zookeeper=127.0.0.1:1", "--lease is 41s", "100ms to 40s", "ZooKeeper"},
	{"serve --lease=99ms", "--lease is 99ms", "at least 100ms"},
	{"serve --key-ttl=999us", "--key-ttl is 999", "at least 1ms"},
	{"serve --lease=1s --poll=1s", "--poll", "--lease"},
	{"serve --mysql-idle-timeout=15s", "--mysql-idle-timeout", "--request-timeout"},
	{"serve --lock-wait=15s", "--lock-wait", "--request-timeout"},
	{"serve --request-timeout=0s", "--request-timeout", "at least 3s"},
	{"serve --drain-delay=-1s", "--drain-delay is -1s"},
	{"serve --max-ttl=721h", "--max-ttl is 721h0m0s", "100ms to 720h0m0s"},
	{"serve --reservation-retention=0s", "--reservation-retention is 0s"},
	{"serve --max-hold=-1s", "--max-hold is -1s"},
	{"serve --max-hold=11s", "--max-hold is 11s", "0s to 10s"},

	{"prune --older-than=24h", "--mysql-dsn is missing"},
	{"prune --mysql-dsn=root@tcp(h:1)/stock", "--older-than is missing"},
	{"STOCK_REDIS=h:1 reconcile", "--mysql-dsn and --redis"},
	{"migrate", "--mysql-dsn is missing"},
	{"healthcheck --url=localhost", "--url", "http://127.0.0.1:8080"},
	{"healthcheck --url=http://root:secret@127.0.0.1:1", "--url", "without a user or a password"},
}

func TestWrongConfigurationIsOneClearLineAndExitCode2(t *testing.T) {
	t.Parallel()
	for _, test := range wrongConfigurations {
		t.Run(test[0], func(t *testing.T) {
			t.Parallel()
			env, args := environment{}, strings.Fields(test[0])
			for strings.HasPrefix(args[0], "STOCK_") {
				name, value, _ := strings.Cut(args[0], "=")
				env[name], args = value, args[1:]
			}
			text, err := refused(t, env, args...)
			if exitCode(err) != 2 {
				t.Fatalf("exit code %d: %v", exitCode(err), err)
			}
			for _, part := range test[1:] {
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

// The error of the server is printed. It must not contain the password. That of a running service is seen by
// TestAServerThatLetsNobodyInIsReportedWithWhatToDo.
func TestMigrateDoesNotPrintAPasswordThatIsRefused(t *testing.T) {
	t.Parallel()
	config, err := mysql.ParseDSN(shared.Database(t))
	must.Succeed(t, err)
	config.Passwd = "secret"
	env := environment{"STOCK_MYSQL_DSN": config.FormatDSN()}
	if text, err := printed(t.Context(), env, "migrate"); exitCode(err) != 1 || strings.Contains(text, "secret") {
		t.Errorf("migrate prints %q", text)
	}
}

func TestFlagWinsOverEnvironment(t *testing.T) {
	t.Parallel()
	alive := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer alive.Close()
	_, err := command(t, environment{"STOCK_URL": alive.URL}, "healthcheck")
	must.Succeed(t, err)
	_, err = command(t, environment{"STOCK_URL": "nonsense"}, "healthcheck", "--url", alive.URL)
	must.Succeed(t, err)
}

func TestHelpListsTheVariables(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"serve": "[STOCK_DEFAULT_STRATEGY]", "migrate": "[STOCK_REDIS_TLS]", "reconcile": "[STOCK_GOODS]",
		"healthcheck": "[STOCK_URL]",
	} {
		if help, err := command(t, nil, name, "--help"); err != nil || !strings.Contains(help, want) {
			t.Errorf("the help of %s lacks %s: %v", name, want, err)
		}
	}
}

// An image is built without the repository, so the Go command cannot record the revision.
func TestVersionHasTheRevisionThatTheDockerfilePasses(t *testing.T) {
	serverstest.Long(t)
	t.Parallel()
	dockerfile, err := os.ReadFile("../../Dockerfile")
	must.Succeed(t, err)
	flag := regexp.MustCompile(`-X \S+=\$\{REVISION\}`).FindString(string(dockerfile))
	binary := filepath.Join(t.TempDir(), "stock")
	stamp := "-ldflags=" + strings.ReplaceAll(flag, "${REVISION}", "0123abc+dirty")
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", stamp, "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as make build does
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, err := exec.Command(binary, "version").Output()
	want := regexp.MustCompile(`^stock \S+, revision 0123abc with changes, go1\.\S+\n$`)
	if err != nil || !want.Match(out) {
		t.Errorf("%q, %v, want %s", out, err, want)
	}
}

// Units may have been sold since the first migration.
func TestMigrateCopiesTheCurrentStockToARedisThatLostItsData(t *testing.T) {
	t.Parallel()
	env, client := streamed(t, redisOptions)
	p := launch(t, env, "serve")
	p.expect(t, "POST", p.url+"/stock/deduct/redis-stream?goods_id=1&count=5", 200)
	eventually(t, "the sale is in MySQL", func() bool { return p.backlog(t) == "0" })
	must.Succeed(t, client.FlushAll(t.Context()).Err())
	mustMigrate(t, env)
	if got := p.expect(t, "GET", p.url+"/stock/1?store=redis", 200); got["stock"] != 5995.0 {
		t.Errorf("%v units, want the 5995 that MySQL has", got["stock"])
	}
	p.expect(t, "POST", p.url+"/stock/deduct/redis-stream?goods_id=1&count=5", 200)
	eventually(t, "the sale is in MySQL", func() bool { return p.backlog(t) == "0" })
	if out, err := command(t, env, "reconcile"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestHealthcheck(t *testing.T) {
	t.Parallel()
	p := launch(t, environment{"STOCK_MYSQL_DSN": "root@tcp(" + serverstest.FreeAddress(t) + ")/stock"}, "serve")
	if _, err := command(t, nil, "healthcheck", "--url", p.url); err != nil {
		t.Errorf("alive: %v", err)
	}
	_, err := command(t, nil, "healthcheck", "--url", p.url, "--ready")
	if exitCode(err) != 1 || !strings.Contains(err.Error(), "503") {
		t.Errorf("not ready: %v", err)
	}
	if _, err := command(t, nil, "healthcheck", "--url", "http://"+serverstest.FreeAddress(t)); exitCode(err) != 1 {
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
		asProgram + "=1", "STOCK_LISTEN=127.0.0.1:0", "STOCK_ADMIN_LISTEN=127.0.0.1:0",
	}
	for name, value := range env {
		p.cmd.Env = append(p.cmd.Env, name+"="+value)
	}
	stderr, err := p.cmd.StderrPipe()
	must.Succeed(t, err)
	must.Succeed(t, p.cmd.Start())
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
	case <-time.After(time.Minute):
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

// awaitReady waits until the service is ready: on a busy machine, a server may answer too late at first.
func (p *program) awaitReady(t *testing.T) {
	t.Helper()
	eventually(t, "the service is ready", func() bool {
		status, _ := p.call("GET", p.url+"/readyz")
		return status == http.StatusOK
	})
}

func (p *program) setStock(t *testing.T, goodsID, units int64) {
	t.Helper()
	url := fmt.Sprintf("%s/admin/stock/%d", p.admin, goodsID)
	if status, body := p.send("PUT", url, fmt.Sprintf(`{"stock":%d}`, units)); status != http.StatusOK {
		t.Fatalf("set the stock: %d %v", status, body)
	}
}

func (p *program) signal(t *testing.T, signal os.Signal) {
	t.Helper()
	must.Succeed(t, p.cmd.Process.Signal(signal))
}

// wait waits for the end of the program.
func (p *program) wait(t *testing.T) *os.ProcessState {
	t.Helper()
	select {
	case <-p.exited:
	case <-time.After(time.Minute):
		t.Fatalf("the program does not end:\n%s", p.log())
	}
	return p.cmd.ProcessState
}

var eventually = serverstest.Eventually
