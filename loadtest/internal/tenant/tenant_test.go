package tenant_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"stock/internal/servers"
	"stock/internal/servers/serverstest"
	"stock/internal/tcpproxy"
	"stock/loadtest/internal/oracle"
	"stock/loadtest/internal/tenant"
)

var shared serverstest.Servers

func TestMain(m *testing.M) { os.Exit(shared.Run(m)) }

// createDatabase takes the name of a database as the administrator of a server.
func createDatabase(t *testing.T, server *servers.MySQL, name string) *tenant.Database {
	t.Helper()
	d, err := tenant.CreateDatabase(t.Context(), server.DSN(""), oracle.Account{}, name)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// createKeys takes the prefix "lab:".
func createKeys(t *testing.T, addresses ...string) *tenant.Keys {
	t.Helper()
	k, err := tenant.CreateKeys(t.Context(), addresses, oracle.Account{}, "lab:")
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestADatabaseOfTheUserIsLeftAloneAndTheErrorSaysHowToRemoveIt(t *testing.T) {
	t.Parallel()
	server := shared.MySQL(t)
	if _, err := server.CreateDatabase(t.Context(), "users_own"); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("mysql", server.DSN("users_own"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, statement := range []string{"DO 1", "CREATE TABLE treasure (id INT)"} { // it is empty at first
		execute(t, db, statement)
		_, err = tenant.CreateDatabase(t.Context(), server.DSN(""), oracle.Account{}, "users_own")
		if err == nil || !strings.Contains(err.Error(), "it is left alone") ||
			!strings.Contains(err.Error(), "DROP DATABASE `users_own` if nobody needs it") {
			t.Errorf("got %v, want that the database is left alone, and how to remove it", err)
		}
	}
	execute(t, db, "SELECT * FROM treasure")
}

// findLock returns a pool of connections to a server, and the id of the connection that holds the name of a lab.
func findLock(t *testing.T, server *servers.MySQL, name string) (db *sql.DB, id string) {
	t.Helper()
	db, err := sql.Open("mysql", server.DSN(""))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	if err := db.QueryRowContext(t.Context(), "SELECT IS_USED_LOCK(?)", "loadtest:"+name).Scan(&id); err != nil {
		t.Fatal(err)
	}
	return db, id
}

func TestADatabaseIsRemovedAlsoAfterItsConnectionHasEnded(t *testing.T) {
	t.Parallel()
	server := shared.MySQL(t)
	d := createDatabase(t, server, "cut_off")
	db, id := findLock(t, server, "cut_off")
	execute(t, db, "KILL "+id)
	if err := d.Remove(t.Context()); err != nil {
		t.Error(err)
	}
	var left int
	const query = "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = 'cut_off'"
	if err := db.QueryRowContext(t.Context(), query).Scan(&left); err != nil || left != 0 {
		t.Errorf("%d databases are left, %v", left, err)
	}
}

// execute runs statements as the administrator of a server.
func execute(t *testing.T, db *sql.DB, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// labDSN returns the DSN of an account of its own that may use the database of the same name.
func labDSN(t *testing.T, server *servers.MySQL, name, limit string) (admin *sql.DB, dsn string) {
	t.Helper()
	admin, err := sql.Open("mysql", server.DSN(""))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { admin.Close() })
	execute(t, admin, "CREATE USER "+name+"@'127.0.0.1' "+limit, "GRANT ALL ON "+name+".* TO "+name+"@'127.0.0.1'")
	return admin, name + "@tcp(" + server.Addr + ")/"
}

func TestRemovalSaysWhyTheServerDoesNotDropTheDatabase(t *testing.T) {
	t.Parallel()
	server := shared.MySQL(t)
	admin, dsn := labDSN(t, server, "cannotdrop", "")
	d, err := tenant.CreateDatabase(t.Context(), dsn, oracle.Account{}, "cannotdrop")
	if err != nil {
		t.Fatal(err)
	}
	execute(t, admin, "REVOKE DROP ON cannotdrop.* FROM cannotdrop@'127.0.0.1'")
	err = d.Remove(t.Context())
	if reply, ok := errors.AsType[*mysql.MySQLError](err); !ok || reply.Number != 1044 ||
		!strings.Contains(err.Error(), "remove it with DROP DATABASE `cannotdrop`") {
		t.Errorf("got %v, want the server's error, and what to do", err)
	}
	next, err := tenant.CreateDatabase(t.Context(), server.DSN(""), oracle.Account{}, "cannotdrop")
	if err != nil {
		t.Fatalf("the next lab: %v", err)
	}
	if err := next.Remove(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestALabTakesItsNameAgainAfterItsConnectionHasEnded(t *testing.T) {
	t.Parallel()
	server := shared.MySQL(t)
	d := createDatabase(t, server, "taken_again")
	db, id := findLock(t, server, "taken_again")
	execute(t, db, "KILL "+id)
	serverstest.Eventually(t, "the lock is held by another connection", func() bool {
		var now sql.NullString
		err := db.QueryRowContext(t.Context(), "SELECT IS_USED_LOCK('loadtest:taken_again')").Scan(&now)
		return err == nil && now.Valid && now.String != id
	})
	if _, err := tenant.CreateDatabase(t.Context(), server.DSN(""), oracle.Account{}, "taken_again"); err == nil ||
		!strings.Contains(err.Error(), "another lab that is running") {
		t.Errorf("another lab: %v", err)
	}
	if err := errors.Join(d.Loss(), d.Remove(t.Context())); err != nil {
		t.Error(err)
	}
}

func TestALabNoticesThatItsDatabaseHasBeenReplaced(t *testing.T) {
	t.Parallel()
	server := shared.MySQL(t)
	d := createDatabase(t, server, "noticed")
	if err := d.Loss(); err != nil {
		t.Error(err)
	}
	db, id := findLock(t, server, "noticed")
	execute(t, db, "DROP DATABASE noticed", "CREATE DATABASE noticed", "CREATE TABLE noticed.treasure (id INT)",
		"KILL "+id)
	select {
	case <-d.Lost():
	case <-time.After(20 * time.Second):
		t.Fatal("the lab has not noticed it")
	}
	if err := d.Loss(); err == nil || !strings.Contains(err.Error(), "worthless") {
		t.Errorf("got %v, want that the run is worthless", err)
	}
	if err := d.Remove(t.Context()); err == nil || !strings.Contains(err.Error(), "it is left alone") {
		t.Errorf("got %v, want that the database is left alone", err)
	}
	execute(t, db, "SELECT * FROM noticed.treasure")
}

func TestConnectionsThatTheAccountHasAreNotFree(t *testing.T) {
	t.Parallel()
	const most, used, ofLab = 40, 5, 8
	admin, dsn := labDSN(t, shared.MySQL(t), "limited", fmt.Sprint("WITH MAX_USER_CONNECTIONS ", most))
	account, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { account.Close() })
	for range used {
		conn, err := account.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
	}
	d, err := tenant.CreateDatabase(t.Context(), dsn, oracle.Account{}, "limited")
	if err != nil {
		t.Fatal(err)
	}
	if d.Free != most-used-ofLab {
		t.Errorf("%d connections are free, want %d", d.Free, most-used-ofLab)
	}
	if err := d.Remove(t.Context()); err != nil {
		t.Error(err)
	}
	execute(t, admin, "DROP USER limited@'127.0.0.1'")
}

func TestTheTimeoutsOfReplicasAreTheUsers(t *testing.T) {
	t.Parallel()
	server := shared.MySQL(t)
	for parameters, want := range map[string]time.Duration{"": 0, "&timeout=7s": 7 * time.Second} {
		d, err := tenant.CreateDatabase(t.Context(), server.DSN("")+parameters, oracle.Account{}, "timeouts")
		if err != nil {
			t.Fatal(err)
		}
		config, err := mysql.ParseDSN(d.DSN)
		if err != nil || config.Timeout != want || config.DBName != "timeouts" {
			t.Errorf("%q: %v, timeout of %v, %v", parameters, d.DSN, config.Timeout, err)
		}
		if err := d.Remove(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestADSNThatTheLabCannotUseIsRefused(t *testing.T) {
	t.Parallel()
	for dsn, want := range map[string]string{
		"lab@unix(/run/mysqld/mysqld.sock)/": "user:password@tcp(127.0.0.1:3306)/",
		"lab@tcp(127.0.0.1:1)/stock":         "leave the name out",
		"tcp(127.0.0.1:1)/lab:secret@":       "leave the name out",
	} {
		_, err := tenant.CreateDatabase(t.Context(), dsn, oracle.Account{}, "stock_lab")
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %q", dsn, err, want)
		}
	}
}

func TestKeysOfTheUserAreLeftAlone(t *testing.T) {
	t.Parallel()
	server := serverstest.StartRedis(t, servers.RedisOptions{})
	client := serverstest.RedisClient(t, &redis.Options{Addr: server.Addr})
	if err := client.Set(t.Context(), "users:cart", "full", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := tenant.CreateKeys(t.Context(), []string{server.Addr}, oracle.Account{}, "users:"); err == nil ||
		!strings.Contains(err.Error(), "users:cart") {
		t.Errorf("got %v, want that the key is left alone", err)
	}
	if keys := client.Keys(t.Context(), "*").Val(); len(keys) != 1 || keys[0] != "users:cart" {
		t.Errorf("the keys are %v, want the user's alone", keys)
	}
}

// create is a lab that takes the prefix "lab:", and whose scans of the key space are held back.
type create struct {
	proxy   *tcpproxy.Proxy
	release func()
	done    chan struct{} // closed when CreateKeys has returned
	keys    *tenant.Keys
	err     error
}

// startCreating returns when the scan has begun.
func startCreating(ctx context.Context, t *testing.T, server *servers.Redis) *create {
	t.Helper()
	c := &create{proxy: tcpproxy.New(t, server.Addr), done: make(chan struct{})}
	c.proxy.Select(func(m tcpproxy.Message) bool { return bytes.Contains(m.Data, []byte("$4\r\nscan\r\n")) })
	c.release = c.proxy.Hold()
	go func() {
		defer close(c.done)
		c.keys, c.err = tenant.CreateKeys(ctx, []string{c.proxy.Addr()}, oracle.Account{}, "lab:")
	}()
	t.Cleanup(func() { c.release(); <-c.done })
	serverstest.Eventually(t, "the scan has begun", func() bool { return c.proxy.Count() > 0 })
	return c
}

func TestAClaimIsRenewedWhileTheKeySpaceIsScanned(t *testing.T) {
	t.Parallel()
	server := serverstest.StartRedis(t, servers.RedisOptions{})
	client := serverstest.RedisClient(t, &redis.Options{Addr: server.Addr})
	first := startCreating(t.Context(), t, server)
	const left = 12 * time.Second
	client.PExpire(t.Context(), "lab:lab", left)
	serverstest.Eventually(t, "the claim is renewed", func() bool {
		return client.PTTL(t.Context(), "lab:lab").Val() > left
	})
	if _, err := tenant.CreateKeys(t.Context(), []string{server.Addr}, oracle.Account{}, "lab:"); err == nil ||
		!strings.Contains(err.Error(), "another lab uses") {
		t.Errorf("a second lab: %v", err)
	}
	first.release()
	if <-first.done; first.err != nil {
		t.Fatal(first.err)
	}
	if err := first.keys.Remove(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestALabThatLosesItsClaimDuringTheScanChangesNothing(t *testing.T) {
	t.Parallel()
	server := serverstest.StartRedis(t, servers.RedisOptions{})
	client := serverstest.RedisClient(t, &redis.Options{Addr: server.Addr})
	for _, left := range []map[string]string{{}, {"lab:lab:marker": "dead", "lab:stock": "1"}} {
		client.FlushAll(t.Context())
		for key, value := range left {
			client.Set(t.Context(), key, value, 0)
		}
		c := startCreating(t.Context(), t, server)
		client.Set(t.Context(), "lab:lab", "other", 0)
		c.release()
		if <-c.done; c.err == nil || !strings.Contains(c.err.Error(), "another lab has taken") {
			t.Errorf("%v: %v, want that another lab has taken the prefix", left, c.err)
		}
		left["lab:lab"] = "other"
		for key, value := range left {
			if got := client.Get(t.Context(), key).Val(); got != value {
				t.Errorf("%v: %s is %q", left, key, got)
			}
		}
		if n := client.DBSize(t.Context()).Val(); int(n) != len(left) {
			t.Errorf("%v: there are %d keys", left, n)
		}
	}
}

func TestAnInterruptEndsTheScanAndFreesThePrefix(t *testing.T) {
	t.Parallel()
	server := serverstest.StartRedis(t, servers.RedisOptions{})
	client := serverstest.RedisClient(t, &redis.Options{Addr: server.Addr})
	ctx, interrupt := context.WithCancel(t.Context())
	c := startCreating(ctx, t, server)
	interrupt()
	if <-c.done; !errors.Is(c.err, context.Canceled) {
		t.Errorf("the lab ended with %v", c.err)
	}
	if keys := client.Keys(t.Context(), "*").Val(); len(keys) > 0 {
		t.Errorf("the lab has left %v", keys)
	}
}

func TestKeysAreRemovedInFewRoundTrips(t *testing.T) {
	t.Parallel()
	server := serverstest.StartRedis(t, servers.RedisOptions{})
	proxy := tcpproxy.New(t, server.Addr)
	client := serverstest.RedisClient(t, &redis.Options{Addr: server.Addr})
	k := createKeys(t, proxy.Addr())
	const keys, tripsPerThousand = 3000, 10
	for i := range keys {
		if err := client.Set(t.Context(), "lab:"+strconv.Itoa(i), i, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	before := proxy.Count()
	if err := k.Remove(t.Context()); err != nil {
		t.Error(err)
	}
	if trips := proxy.Count() - before; trips > keys/1000*tripsPerThousand {
		t.Errorf("%d round trips for %d keys", trips, keys)
	}
	if left := client.DBSize(t.Context()).Val(); left > 0 {
		t.Errorf("%d keys are left", left)
	}
}

func TestALabThatEndsWhileItRemovesKeysLeavesTheMarker(t *testing.T) {
	t.Parallel()
	server := serverstest.StartRedis(t, servers.RedisOptions{})
	client := serverstest.RedisClient(t, &redis.Options{Addr: server.Addr, Username: "admin", Password: "secret"})
	setUp := serverstest.RedisClient(t, &redis.Options{Addr: server.Addr})
	const prefixes = 20 // SCAN finds the marker before the other key, or after it
	for i := range prefixes {
		if err := setUp.MSet(t.Context(), prefixed(i)+"lab:marker", "dead", prefixed(i)+"stock", 1).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, rule := range []string{"admin on >secret ~* +@all", "default resetkeys ~*:lab ~*:lab:marker"} {
		args := []any{"ACL", "SETUSER"}
		for word := range strings.FieldsSeq(rule) {
			args = append(args, word)
		}
		if err := setUp.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for i := range prefixes {
		if _, err := tenant.CreateKeys(t.Context(), []string{server.Addr}, oracle.Account{}, prefixed(i)); err == nil {
			t.Fatal("the lab has deleted a key that its account may not delete")
		}
		if client.Exists(t.Context(), prefixed(i)+"lab:marker").Val() == 0 {
			t.Errorf("%s: the marker is gone, and with it the proof that the keys that are left are a lab's", prefixed(i))
		}
	}
}

func prefixed(i int) string { return "lab" + strconv.Itoa(i) + ":" }

func TestKeysThatAnotherLabHasTakenAreLeftToIt(t *testing.T) {
	t.Parallel()
	server := serverstest.StartRedis(t, servers.RedisOptions{})
	client := serverstest.RedisClient(t, &redis.Options{Addr: server.Addr})
	first := createKeys(t, server.Addr)
	client.Del(t.Context(), "lab:lab") // as if the first lab had been suspended for 20 s
	second := createKeys(t, server.Addr)
	if err := client.Set(t.Context(), "lab:stock:{1}", 1, 0).Err(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-first.Lost():
	case <-time.After(20 * time.Second):
		t.Error("the first lab has not noticed it")
	}
	if err := first.Loss(); err == nil || !strings.Contains(err.Error(), "another lab has taken") {
		t.Errorf("the first lab has noticed %v", err)
	}
	if err := first.Remove(t.Context()); err == nil || !strings.Contains(err.Error(), "another lab has taken") {
		t.Errorf("the first lab ended with %v", err)
	}
	if n := client.Exists(t.Context(), "lab:lab", "lab:lab:marker", "lab:stock:{1}").Val(); n != 3 {
		t.Errorf("%d of 3 keys of the second lab are left", n)
	}
	if err := second.Remove(t.Context()); err != nil {
		t.Error(err)
	}
	if keys := client.Keys(t.Context(), "*").Val(); len(keys) > 0 {
		t.Errorf("the second lab has left %v", keys)
	}
}

func TestAClaimThatHasExpiredIsTakenAgain(t *testing.T) {
	t.Parallel()
	server := serverstest.StartRedis(t, servers.RedisOptions{})
	client := serverstest.RedisClient(t, &redis.Options{Addr: server.Addr})
	k := createKeys(t, server.Addr)
	client.Del(t.Context(), "lab:lab")
	serverstest.Eventually(t, "the claim is back", func() bool { return client.Exists(t.Context(), "lab:lab").Val() == 1 })
	if err := k.Remove(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestKeysAreRemovedFromEveryMasterOfACluster(t *testing.T) {
	t.Parallel()
	cluster := serverstest.StartCluster(t)
	addresses := cluster.Addrs
	k := createKeys(t, addresses...)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addresses})
	defer client.Close()
	for _, key := range []string{"lab:stock:{1}", "lab:stock:{2}", "lab:stock:{3}", "lab:stock:{4}", "users:1"} {
		if err := client.Set(t.Context(), key, 1, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := k.Remove(t.Context()); err != nil {
		t.Error(err)
	}
	if left := client.Exists(t.Context(), "users:1").Val(); left != 1 {
		t.Error("the user's key is gone")
	}
	for _, key := range []string{"lab:stock:{1}", "lab:stock:{2}", "lab:stock:{3}", "lab:stock:{4}", "lab:lab:marker"} {
		if client.Exists(t.Context(), key).Val() != 0 {
			t.Errorf("%s is left", key)
		}
	}
	if _, err := tenant.CreateKeys(t.Context(), addresses[:1], oracle.Account{}, "lab:"); err == nil ||
		!strings.Contains(err.Error(), "at least two") {
		t.Errorf("one member of a Cluster: %v", err)
	}
}
