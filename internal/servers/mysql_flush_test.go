package servers_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"stock/internal/servers"
)

func TestDelayedFlushesMakeACommitSlower(t *testing.T) {
	t.Parallel()
	server, err := servers.StartMySQL(t.Context(), servers.MySQLOptions{SlowFlushes: true})
	if errors.Is(err, servers.ErrNotInstalled) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	dsn, err := server.CreateDatabase(t.Context(), "flushed")
	if err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	if _, err := db.ExecContext(t.Context(), "CREATE TABLE t (n BIGINT)"); err != nil {
		t.Fatal(err)
	}
	const delay = 300 * time.Millisecond
	if err := server.DelayFlushes(delay); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if _, err := db.ExecContext(t.Context(), "INSERT INTO t VALUES (1)"); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < delay {
		t.Errorf("a commit took %v, which is less than one flush: %v", took, delay)
	}
	if err := server.DelayFlushes(0); err != nil {
		t.Error(err)
	}
}
