package tenant_test

import (
	"database/sql"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"stock/internal/servers"
	"stock/internal/servers/serverstest"
	"stock/loadtest/internal/oracle"
	"stock/loadtest/internal/tenant"
)

var shared serverstest.Servers

func TestMain(m *testing.M) { os.Exit(shared.Run(m)) }

func TestADatabaseOfTheUserIsLeftAlone(t *testing.T) {
	t.Parallel()
	server := shared.MySQL(t)
	dsn, err := server.CreateDatabase(t.Context(), "users_own")
	if err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), "CREATE TABLE treasure (id INT)"); err != nil {
		t.Fatal(err)
	}
	if _, err := tenant.CreateDatabase(t.Context(), server.DSN(""), oracle.Account{}, "users_own"); err == nil ||
		!strings.Contains(err.Error(), "it is left alone") {
		t.Errorf("got %v, want that the database is left alone", err)
	}
	var rows int
	if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM treasure").Scan(&rows); err != nil {
		t.Errorf("the table: %v", err)
	}
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
	d, err := tenant.CreateDatabase(t.Context(), server.DSN(""), oracle.Account{}, "cut_off")
	if err != nil {
		t.Fatal(err)
	}
	db, id := findLock(t, server, "cut_off")
	if _, err := db.ExecContext(t.Context(), "KILL "+id); err != nil {
		t.Fatal(err)
	}
	if err := d.Remove(t.Context()); err != nil {
		t.Error(err)
	}
	var left int
	const query = "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = 'cut_off'"
	if err := db.QueryRowContext(t.Context(), query).Scan(&left); err != nil || left != 0 {
		t.Errorf("%d databases are left, %v", left, err)
	}
}

func TestADatabaseThatHasTakenThePlaceOfTheLabsIsLeftAlone(t *testing.T) {
	t.Parallel()
	server := shared.MySQL(t)
	d, err := tenant.CreateDatabase(t.Context(), server.DSN(""), oracle.Account{}, "replaced")
	if err != nil {
		t.Fatal(err)
	}
	db, id := findLock(t, server, "replaced")
	for _, statement := range []string{
		"KILL " + id, "DROP DATABASE replaced",
		"CREATE DATABASE replaced", "CREATE TABLE replaced.treasure (id INT)",
	} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Remove(t.Context()); err == nil || !strings.Contains(err.Error(), "it is left alone") {
		t.Errorf("got %v, want that the database is left alone", err)
	}
	var rows int
	if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM replaced.treasure").Scan(&rows); err != nil {
		t.Errorf("the table: %v", err)
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
	first, err := tenant.CreateKeys(t.Context(), []string{server.Addr}, oracle.Account{}, "lab:")
	if err != nil {
		t.Fatal(err)
	}
	client.Del(t.Context(), "lab:lab") // as if the first lab had been suspended for 20 s
	second, err := tenant.CreateKeys(t.Context(), []string{server.Addr}, oracle.Account{}, "lab:")
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Set(t.Context(), "lab:stock:{1}", 1, 0).Err(); err != nil {
		t.Fatal(err)
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
	k, err := tenant.CreateKeys(t.Context(), []string{server.Addr}, oracle.Account{}, "lab:")
	if err != nil {
		t.Fatal(err)
	}
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
	k, err := tenant.CreateKeys(t.Context(), addresses, oracle.Account{}, "lab:")
	if err != nil {
		t.Fatal(err)
	}
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
