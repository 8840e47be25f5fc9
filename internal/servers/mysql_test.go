package servers_test

import (
	"database/sql"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/go-sql-driver/mysql"

	"stock/internal/must"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
)

var shared serverstest.Servers

func TestMySQLIsDurableUnlessItsArgumentsSayOtherwise(t *testing.T) {
	t.Parallel()
	for argument, want := range map[string]string{"": "1", "--innodb-flush-log-at-trx-commit=2": "2"} {
		server := serverstest.StartMySQL(t, servers.MySQLOptions{Args: strings.Fields(argument)})
		for name, want := range map[string]string{
			"innodb_flush_log_at_trx_commit": want, "log_bin": "ON", "sync_binlog": "1", "binlog_format": "ROW",
		} {
			if got := server.Settings[name]; got != want {
				t.Errorf("with the argument %q, %s is %q, want %q", argument, name, got, want)
			}
		}
	}
}

func TestMySQLRefusesConnectionsWithoutThePassword(t *testing.T) {
	t.Parallel()
	config, err := mysql.ParseDSN(shared.MySQL(t).DSN(""))
	must.Succeed(t, err)
	for _, user := range []string{"root", ""} {
		config.User, config.Passwd = user, ""
		db := open(t, config.FormatDSN())
		var refused *mysql.MySQLError
		if err := db.PingContext(t.Context()); !errors.As(err, &refused) {
			t.Errorf("user %q without a password gets %v, want a refusal by the server", user, err)
		}
	}
}

const smallDisk = 64 << 20 // bytes

// cannotMount reports whether a server did not start because this process may not mount its disk.
func cannotMount(err error) bool {
	return errors.Is(err, syscall.EPERM) || errors.Is(err, errors.ErrUnsupported)
}

// gone checks that a stopped server has left no process, and so no open port, and no directory.
func gone(t *testing.T, process *servers.Process) {
	t.Helper()
	if process.Err() == nil {
		t.Errorf("%s is still running", process.Name)
	}
	serverstest.Gone(t, []int{process.PID}, nil) // workers of nginx that were killed end a moment later
	if _, err := os.Stat(process.Log); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory of %s still exists: %v", process.Name, err)
	}
}

func open(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	must.Succeed(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}
