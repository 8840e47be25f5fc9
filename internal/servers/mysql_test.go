package servers_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/go-sql-driver/mysql"

	"stock/internal/must"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
)

var shared serverstest.Servers

func TestMySQLIsDurableByDefault(t *testing.T) {
	t.Parallel()
	server := serverstest.StartMySQL(t, servers.MySQLOptions{})
	for name, want := range map[string]string{
		"innodb_flush_log_at_trx_commit": "1",
		"log_bin":                        "ON",
		"sync_binlog":                    "1",
		"binlog_format":                  "ROW",
	} {
		if got := server.Settings[name]; got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

func TestMySQLKeepsCommittedRowsWhenKilled(t *testing.T) {
	t.Parallel()
	server := serverstest.StartMySQL(t, servers.MySQLOptions{})
	dsn, err := server.CreateDatabase(t.Context(), "stock")
	must.Succeed(t, err)
	exec(t, dsn, "CREATE TABLE good (id INT PRIMARY KEY)", "INSERT INTO good VALUES (7)")

	pid := server.PID
	must.Succeed(t, server.Restart(t.Context()))
	if server.PID == pid {
		t.Error("the restarted server is the same process")
	}
	if got := scalar(t, server.DSN("stock"), "SELECT id FROM good"); got != "7" {
		t.Errorf("after the restart, the row has %q, want 7", got)
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

func TestMySQLStopFreesThePortAndTheDirectory(t *testing.T) {
	t.Parallel()
	server, err := servers.StartMySQL(t.Context(), servers.MySQLOptions{Relaxed: true})
	must.Succeed(t, err)
	must.Succeed(t, server.Stop(t.Context()))
	gone(t, server.Process)
}

func TestFailedStartOfMySQLShowsItsLog(t *testing.T) {
	t.Parallel()
	_, err := servers.StartMySQL(t.Context(), servers.MySQLOptions{Args: []string{"--no-such-option"}})
	contains(t, err, "ended before it was ready", "no-such-option")
}

func TestMySQLOnASmallDiskRefusesRowsUntilThereIsRoom(t *testing.T) {
	t.Parallel()
	server, err := servers.StartMySQL(t.Context(), servers.MySQLOptions{Relaxed: true, Disk: smallDisk})
	if cannotMount(err) {
		t.Skip(err)
	}
	must.Succeed(t, err)
	t.Cleanup(func() {
		server.Kill()
		must.Succeed(t, server.Stop(context.Background()))
		gone(t, server.Process)
	})
	dsn, err := server.CreateDatabase(t.Context(), "stock")
	must.Succeed(t, err)
	exec(t, dsn, "CREATE TABLE good (id INT AUTO_INCREMENT PRIMARY KEY, filler CHAR(250))")
	ballast := filepath.Join(server.Data, "ballast")
	if err := os.WriteFile(ballast, make([]byte, smallDisk), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("filling the disk ends with %v, want %v", err, syscall.ENOSPC)
	}
	db := open(t, dsn)
	insert := func() error {
		_, err := db.ExecContext(t.Context(), "INSERT INTO good (filler) VALUES (REPEAT('x', 250))")
		return err
	}
	for range 1000 {
		if err = insert(); err != nil {
			break
		}
	}
	const tableIsFull = 1114
	var refused *mysql.MySQLError
	if !errors.As(err, &refused) || refused.Number != tableIsFull {
		t.Errorf("after many rows, INSERT gives %v, want error %d", err, tableIsFull)
	}
	must.Succeed(t, os.Remove(ballast))
	if err := insert(); err != nil {
		t.Errorf("INSERT fails although there is room: %v", err)
	}
}

const smallDisk = 64 << 20 // bytes

// cannotMount reports whether a server did not start because this process may not mount its disk.
func cannotMount(err error) bool {
	return errors.Is(err, syscall.EPERM) || errors.Is(err, errors.ErrUnsupported)
}

func TestArgumentsOfMySQLOverrideTheDefaults(t *testing.T) {
	t.Parallel()
	server := serverstest.StartMySQL(t, servers.MySQLOptions{Args: []string{
		"--innodb-flush-log-at-trx-commit=2", "--transaction-isolation=SERIALIZABLE",
	}})
	if got := server.Settings["innodb_flush_log_at_trx_commit"]; got != "2" {
		t.Errorf("innodb_flush_log_at_trx_commit is %q, want 2", got)
	}
	isolation := server.Settings["transaction_isolation"] + server.Settings["tx_isolation"] // MySQL, MariaDB
	if isolation != "SERIALIZABLE" {
		t.Errorf("the isolation level is %q, want SERIALIZABLE", isolation)
	}
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

func exec(t *testing.T, dsn string, statements ...string) {
	t.Helper()
	db := open(t, dsn)
	for _, statement := range statements {
		if _, err := db.ExecContext(context.Background(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

func scalar(t *testing.T, dsn, query string) (value string) {
	t.Helper()
	if err := open(t, dsn).QueryRowContext(t.Context(), query).Scan(&value); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return value
}
