package servers_test

import (
	"errors"
	"testing"
	"time"

	"stock/internal/must"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
)

func TestDelayedFlushesMakeACommitSlower(t *testing.T) {
	t.Parallel()
	server, err := servers.StartMySQL(t.Context(), servers.MySQLOptions{SlowFlushes: true})
	if errors.Is(err, servers.ErrNotInstalled) {
		t.Skip(err)
	}
	must.Succeed(t, err)
	serverstest.StopAfterTest(t, server)
	dsn, err := server.CreateDatabase(t.Context(), "flushed")
	must.Succeed(t, err)
	db := open(t, dsn)
	_, err = db.ExecContext(t.Context(), "CREATE TABLE t (n BIGINT)")
	must.Succeed(t, err)
	const delay = 300 * time.Millisecond
	must.Succeed(t, server.DelayFlushes(delay))
	began := time.Now()
	_, err = db.ExecContext(t.Context(), "INSERT INTO t VALUES (1)")
	must.Succeed(t, err)
	if took := time.Since(began); took < delay {
		t.Errorf("a commit took %v, which is less than one flush: %v", took, delay)
	}
	must.Succeed(t, server.DelayFlushes(0))
}
