package tenant_test

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"stock/internal/must"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
	"stock/loadtest/internal/oracle"
	"stock/loadtest/internal/tenant"
)

var shared serverstest.Servers

func TestMain(m *testing.M) { os.Exit(shared.Run(m)) }

// createKeys uses the prefix "lab:".
func createKeys(t *testing.T, addresses ...string) *tenant.Keys {
	t.Helper()
	k, err := tenant.CreateKeys(t.Context(), addresses, oracle.Account{}, "lab:")
	must.Succeed(t, err)
	return k
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
	must.Succeed(t, err)
	t.Cleanup(func() { admin.Close() })
	execute(t, admin, "CREATE USER "+name+"@'127.0.0.1' "+limit, "GRANT ALL ON "+name+".* TO "+name+"@'127.0.0.1'")
	return admin, name + "@tcp(" + server.Addr + ")/"
}

func TestRemovalSaysWhyTheServerDoesNotDropTheDatabase(t *testing.T) {
	t.Parallel()
	server := shared.MySQL(t)
	admin, dsn := labDSN(t, server, "cannotdrop", "")
	d, err := tenant.CreateDatabase(t.Context(), dsn, oracle.Account{}, "cannotdrop")
	must.Succeed(t, err)
	execute(t, admin, "REVOKE DROP ON cannotdrop.* FROM cannotdrop@'127.0.0.1'")
	err = d.Remove(t.Context())
	if reply, ok := errors.AsType[*mysql.MySQLError](err); !ok || reply.Number != 1044 ||
		!strings.Contains(err.Error(), "remove it with DROP DATABASE cannotdrop") {
		t.Errorf("got %v, want the server's error, and what to do", err)
	}
	execute(t, admin, "DROP DATABASE cannotdrop")
}

func TestConnectionsThatTheAccountHasAreNotFree(t *testing.T) {
	t.Parallel()
	const most, used, ofLab = 40, 5, 8
	admin, dsn := labDSN(t, shared.MySQL(t), "limited", fmt.Sprint("WITH MAX_USER_CONNECTIONS ", most))
	account, err := sql.Open("mysql", dsn)
	must.Succeed(t, err)
	t.Cleanup(func() { account.Close() })
	for range used {
		conn, err := account.Conn(t.Context())
		must.Succeed(t, err)
		t.Cleanup(func() { conn.Close() })
	}
	// A connection that was closed counts until the server has noticed that.
	serverstest.Eventually(t, fmt.Sprint(most-used-ofLab, " connections are free"), func() bool {
		d, err := tenant.CreateDatabase(t.Context(), dsn, oracle.Account{}, "limited")
		must.Succeed(t, err)
		must.Succeed(t, d.Remove(t.Context()))
		return d.Free == most-used-ofLab
	})
	execute(t, admin, "DROP USER limited@'127.0.0.1'")
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

func TestKeysAreRemovedFromEveryMasterOfACluster(t *testing.T) {
	t.Parallel()
	cluster := serverstest.StartCluster(t)
	addresses := cluster.Addrs
	k := createKeys(t, addresses...)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addresses})
	defer client.Close()
	ours := []string{"lab:stock:{1}", "lab:stock:{2}", "lab:stock:{3}", "lab:stock:{4}", "lab:lab"}
	for _, key := range append(ours, "users:1") {
		must.Succeed(t, client.Set(t.Context(), key, 1, 0).Err())
	}
	if err := k.Remove(t.Context()); err != nil {
		t.Error(err)
	}
	if left := client.Exists(t.Context(), "users:1").Val(); left != 1 {
		t.Error("the user's key is gone")
	}
	for _, key := range ours {
		if client.Exists(t.Context(), key).Val() != 0 {
			t.Errorf("%s is left", key)
		}
	}
	if _, err := tenant.CreateKeys(t.Context(), addresses[:1], oracle.Account{}, "lab:"); err == nil ||
		!strings.Contains(err.Error(), "at least two") {
		t.Errorf("one member of a Cluster: %v", err)
	}
}
