package main

import (
	"bytes"
	"cmp"
	"database/sql"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"stock/internal/must"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
	"stock/loadtest/internal/report"
)

const mysqlSecret, redisSecret = "mysql-top-secret", "redis-top-secret"

// foreign are servers with data that the lab must leave alone, some of it under the names that the service uses.
type foreign struct {
	dsn   string // of an account that may use the lab's database only
	admin *sql.DB
	redis *redis.Client
	env   []string
}

func startForeign(t *testing.T) foreign {
	t.Helper()
	return startForeignWith(t, nil)
}

// startForeignWith starts servers with TLS if there are files of a certificate. The account of the lab in MySQL then
// needs a certificate, too.
func startForeignWith(t *testing.T, files *servers.TLS) foreign {
	t.Helper()
	args, require := []string{"--max-connections=151"}, ""
	if files != nil {
		args, require = append(args, serverstest.MySQLWithTLS(*files)...), "REQUIRE X509"
	}
	server := serverstest.StartMySQL(t, servers.MySQLOptions{Relaxed: true, Args: args})
	admin, err := sql.Open("mysql", server.DSN(""))
	must.Succeed(t, err)
	t.Cleanup(func() { admin.Close() })
	statements := []string{
		"CREATE DATABASE stock",
		"CREATE TABLE stock.good_stock (goods_id BIGINT PRIMARY KEY, stock BIGINT)",
		"INSERT INTO stock.good_stock VALUES (1, 42), (2, 43)",
	}
	actual := strings.NewReplacer("'%'", "'127.0.0.1'", serverstest.Secret, mysqlSecret, ";", "")
	for _, rule := range serverstest.Rules(t, "../docs/accounts.md", "CREATE USER lab@", "GRANT ALL ") {
		statements = append(statements, actual.Replace(rule))
	}
	if require != "" {
		statements = append(statements, "ALTER USER lab@'127.0.0.1' "+require)
	}
	execute(t, admin, statements...)
	cache := serverstest.StartRedis(t, servers.RedisOptions{AOF: true, TLS: files})
	client := redis.NewClient(&redis.Options{Addr: cache.Addr, Password: redisSecret})
	t.Cleanup(func() { client.Close() })
	err = client.Do(t.Context(), "CONFIG", "SET", "requirepass", redisSecret).Err()
	must.Succeed(t, err)
	err = client.MSet(t.Context(), "stock:{1}", 42, "lock-redis-lua:{1}", "somebody", "cart:7", "x", "stock_labs", 1).Err()
	must.Succeed(t, err)
	dsn := fmt.Sprintf("lab:%s@tcp(%s)/", mysqlSecret, server.Addr)
	return foreign{dsn: dsn, admin: admin, redis: client, env: append(os.Environ(),
		"LOADTEST_MYSQL_DSN="+dsn, "LOADTEST_REDIS="+cmp.Or(cache.TLSAddr, cache.Addr),
		"LOADTEST_REDIS_PASSWORD="+redisSecret)}
}

const userSecret = "user-top-secret"

// limitRedis has the lab use an account of Redis that may do no more than docs/accounts.md says.
func (f *foreign) limitRedis(t *testing.T) {
	t.Helper()
	rules := serverstest.Rules(t, "../docs/accounts.md", "ACL SETUSER lab ")
	for i := range rules {
		rules[i] = strings.ReplaceAll(rules[i], serverstest.Secret, userSecret)
	}
	serverstest.SetUser(t, f.redis.Options(), rules)
	f.env = append(f.env, "LOADTEST_REDIS_USER=lab", "LOADTEST_REDIS_PASSWORD="+userSecret)
}

// startSecured starts servers that ask for TLS, certificates and accounts.
func startSecured(t *testing.T) foreign {
	t.Helper()
	ca := serverstest.NewCA(t)
	server, client := ca.Issue(t, "server", "127.0.0.1"), ca.Issue(t, "client")
	f := startForeignWith(t, &server)
	f.limitRedis(t)
	settings := "ca=" + ca.File + ",cert=" + client.Cert + ",key=" + client.Key
	f.env = append(f.env, "LOADTEST_MYSQL_DSN="+strings.Replace(f.dsn, ":"+mysqlSecret, "", 1),
		"LOADTEST_MYSQL_PASSWORD="+mysqlSecret, "LOADTEST_MYSQL_TLS="+settings, "LOADTEST_REDIS_TLS="+settings)
	return f
}

// command returns a command that runs loadtest on the servers.
func (f foreign) command(t *testing.T, args ...string) (cmd *exec.Cmd, stdout, stderr *bytes.Buffer) {
	t.Helper()
	stdout, stderr = &bytes.Buffer{}, &bytes.Buffer{}
	cmd = command(t, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = f.env, stdout, stderr
	return cmd, stdout, stderr
}

// state is everything on the servers: databases, their rows, global variables, keys, and settings of Redis.
func (f foreign) state(t *testing.T) (lines []string) {
	t.Helper()
	query := func(query string) {
		rows, err := f.admin.QueryContext(t.Context(), query)
		must.Succeed(t, err)
		defer rows.Close()
		columns, err := rows.Columns()
		must.Succeed(t, err)
		for rows.Next() {
			values := make([]sql.NullString, len(columns))
			targets := make([]any, len(columns))
			for i := range values {
				targets[i] = &values[i]
			}
			must.Succeed(t, rows.Scan(targets...))
			lines = append(lines, fmt.Sprint(query, ": ", values))
		}
		must.Succeed(t, rows.Err())
	}
	query("SHOW DATABASES")
	query("SELECT * FROM stock.good_stock")
	query("SELECT user, host FROM mysql.user")
	query("SHOW GLOBAL VARIABLES WHERE Variable_name NOT LIKE '%gtid%' AND Variable_name NOT LIKE '%timestamp%'")
	keys, err := f.redis.Keys(t.Context(), "*").Result()
	must.Succeed(t, err)
	slices.Sort(keys)
	for _, key := range keys {
		lines = append(lines, fmt.Sprint(key, f.redis.Dump(t.Context(), key).Val(), f.redis.TTL(t.Context(), key).Val()))
	}
	settings, err := f.redis.ConfigGet(t.Context(), "*").Result()
	must.Succeed(t, err)
	for name, value := range settings {
		lines = append(lines, name+"="+value)
	}
	slices.Sort(lines)
	return lines
}

func (f foreign) wantState(t *testing.T, want []string) {
	t.Helper()
	if got := f.state(t); !slices.Equal(got, want) {
		for _, line := range got {
			if !slices.Contains(want, line) {
				t.Errorf("now there is %s", line)
			}
		}
		for _, line := range want {
			if !slices.Contains(got, line) {
				t.Errorf("there is no more %s", line)
			}
		}
	}
}

// wantNoSecret fails the test if a password is in the texts, or in a file below dir.
func wantNoSecret(t *testing.T, dir string, texts ...string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		texts = append(texts, string(text))
		return err
	})
	must.Succeed(t, err)
	for _, text := range texts {
		for _, secret := range []string{mysqlSecret, redisSecret, userSecret} {
			if at := strings.Index(text, secret); at >= 0 {
				t.Errorf("a password is in …%s", text[max(0, at-60):at+len(secret)])
			}
		}
	}
}

// run runs loadtest to its end, and fails unless it succeeds, the servers are as they were before, and no password was
// written, neither below a directory.
func (f foreign) run(t *testing.T, dir string, args ...string) (stdout, stderr string) {
	t.Helper()
	before := f.state(t)
	cmd, out, errs := f.command(t, args...)
	if err := cmd.Run(); err != nil {
		t.Errorf("%v\n%s\n%s", err, out, errs)
	}
	f.wantState(t, before)
	wantNoSecret(t, dir, out.String(), errs.String())
	return out.String(), errs.String()
}

// judge runs strategies on the servers, and fails unless every claim held, the servers are as they were before, no
// password was written and the report has a note with each of the texts. It returns what was written to standard error.
func (f foreign) judge(t *testing.T, strategies string, notes []string, args ...string) (stderr string) {
	t.Helper()
	dir := t.TempDir()
	args = append([]string{"run", "--quick", "--requests", "150", "--out", dir, "--strategies", strategies}, args...)
	stdout, stderr := f.run(t, dir, args...)
	r := mustReadReport(t, dir)
	if !r.ClaimsHeld {
		t.Errorf("not every claim held:\n%s", stdout)
	}
	for _, want := range notes {
		if !slices.ContainsFunc(r.Environment.Notes, func(note string) bool { return strings.Contains(note, want) }) {
			t.Errorf("no note says %q: %q", want, r.Environment.Notes)
		}
	}
	return stderr
}

func TestARunOnServersWithTLSAndAccountsLeavesThemAsTheyWere(t *testing.T) {
	t.Parallel()
	// The usual connections of three replicas would not fit.
	stderr := startSecured(t).judge(t, "redis-stream,lock-redis-pubsub,lock-mysql-getlock",
		[]string{
			"were the user's", "with --redis-tls, there is none", "innodb_flush_log_at_trx_commit=0", "fewer connections",
		}, "--replicas=3")
	if !strings.Contains(stderr, "warning: mysql has innodb_flush_log_at_trx_commit=0") {
		t.Errorf("no warning about commits that are not flushed: %s", stderr)
	}
}

func TestCtrlCOnServersOfTheUserLeavesThemAsTheyWere(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux shows command lines in /proc")
	}
	f, dir := startForeign(t), t.TempDir()
	before := f.state(t)
	cmd, _, stderr := f.command(t, "run", "--strategies", "update,redis-stream,lock-redis-queue",
		"--duration", "2s", "--rounds", "20", "--replicas", "4", "--out", dir)
	must.Succeed(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	awaitMeasurement(t, dir)
	for _, pid := range append(children(t, cmd.Process.Pid), cmd.Process.Pid) {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		wantNoSecret(t, t.TempDir(), string(line))
	}
	if slices.Equal(f.state(t), before) {
		t.Error("the state is the same during the run: the test would notice nothing")
	}
	must.Succeed(t, cmd.Process.Signal(os.Interrupt))
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != exitInterrupted {
		t.Errorf("exit status %d: %s", code, stderr)
	}
	f.wantState(t, before)
}

func TestFaultsOnServersOfTheUserLeaveOutAndNameThoseThatBreakThem(t *testing.T) {
	t.Parallel()
	f, dir := startForeign(t), t.TempDir()
	f.limitRedis(t)
	stdout, _ := f.run(t, dir, "faults", "--out", dir, "--strategies", "update,lock-redlock,lock-redis-watchdog",
		"--scenarios", "late-write,no-index/repeatable-read,database-crash/flush-1,redis-restarts/aof")
	played, leftOut := map[string]bool{}, ""
	for _, fault := range mustReadReport(t, dir).Faults {
		if fault.Effect == report.Skipped {
			leftOut += fault.Scenario + ": " + fault.Evidence[0] + "\n"
		} else {
			played[fault.Strategy] = true
		}
	}
	if !strings.Contains(leftOut, "MySQL is yours") || !strings.Contains(leftOut, "Redis is yours") || len(played) != 3 ||
		!strings.Contains(stdout, "Redis is yours") {
		t.Errorf("%v played, and these are left out:\n%s\n%s", played, leftOut, stdout)
	}
}

func TestServersOfTheUserThatCannotBeUsedAreNamed(t *testing.T) {
	t.Parallel()
	f := startForeign(t)
	config, err := mysql.ParseDSN(f.dsn)
	must.Succeed(t, err)
	away := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	const running = "is it running?"
	for _, test := range []struct {
		name string
		args []string
		env  string
		want []string
	}{
		{"MySQL away", []string{"--mysql-dsn=lab@tcp(" + away + ")/"}, "", []string{away, running}},
		{"Redis away", []string{"--redis=" + away}, "", []string{away, running}},
		{"wrong password of MySQL", []string{"--mysql-dsn=lab:wrong@tcp(" + config.Addr + ")/"}, "",
			[]string{config.Addr, "check user and password"}},
		{"the port of Redis for MySQL", []string{"--mysql-dsn=lab@tcp(" + f.redis.Options().Addr + ")/"}, "",
			[]string{"is this MySQL's port?"}},
		{"wrong password of Redis", nil, "LOADTEST_REDIS_PASSWORD=wrong", []string{"LOADTEST_REDIS_PASSWORD"}},
		{"Redis without TLS", []string{"--redis-tls=on"}, "", []string{"is this its port for TLS?"}},
		{"TLS of a MySQL of the lab's", []string{"--mysql-dsn=", "--mysql-tls=on"}, "", []string{"needs --mysql-dsn"}},
		{"TLS of a Redis of the lab's", []string{"--redis=", "--redis-tls=on"}, "", []string{"need --redis"}},
	} {
		cmd, stdout, stderr := f.command(t, append([]string{"run", "--quick", "--out", t.TempDir()}, test.args...)...)
		if test.env != "" {
			cmd.Env = append(cmd.Env, test.env)
		}
		err := cmd.Run()
		if code := cmd.ProcessState.ExitCode(); code != exitUnusable {
			t.Errorf("%s: %v\n%s%s", test.name, err, stdout, stderr)
		}
		for _, want := range test.want {
			if !strings.Contains(stderr.String(), want) {
				t.Errorf("%s: want %q in %s", test.name, want, stderr)
			}
		}
		if !slices.Contains(test.want, running) && strings.Contains(stderr.String(), running) {
			t.Errorf("%s: whether the server runs is known: %s", test.name, stderr)
		}
		wantNoSecret(t, t.TempDir(), stderr.String())
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	port, err := servers.FreePort()
	must.Succeed(t, err)
	return port
}
