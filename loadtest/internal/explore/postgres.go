package explore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/jmoiron/sqlx"

	"stock/loadtest/internal/explore/trace"
	"stock/loadtest/internal/oracle"
	"stock/loadtest/internal/service"
	"stock/loadtest/internal/topology"
)

// The engines of scripts and services.
const (
	MySQL      = oracle.MySQL
	PostgreSQL = trace.Postgres
)

// CheckEngine returns what is wrong with an engine; see StartScripts.
func CheckEngine(engine string) error {
	if service.IsPostgres(engine) || slices.Contains([]string{MySQL, PostgreSQL}, engine) {
		return nil
	}
	return errors.New("must be mysql, postgres, or the address of a server: postgres://USER@HOST/DATABASE")
}

// openPostgres makes a database for the lane on the server.
func (l *lane) openPostgres(ctx context.Context, at *topology.Addresses) error {
	direct, err := service.OpenPostgres(l.postgres, "")
	if err != nil {
		return err
	}
	server := sqlx.NewDb(direct, "pgx")
	l.onStop(func(context.Context) error { return server.Close() })
	var version int
	if err := server.GetContext(ctx, &version, "SELECT current_setting('server_version_num')::int"); err != nil {
		return fmt.Errorf("ask PostgreSQL for its version: %w", err)
	}
	if version < 140_000 {
		return fmt.Errorf("PostgreSQL %d is too old: scripts need version 14 or later", version/10_000)
	}
	name := strings.ToLower("stock_explore_" + rand.Text())
	if _, err := server.ExecContext(ctx, "CREATE DATABASE "+name); err != nil {
		return fmt.Errorf("create a database on PostgreSQL: %w", err)
	}
	l.onStop(func(ctx context.Context) error {
		_, err := server.ExecContext(ctx, "DROP DATABASE "+name+" WITH (FORCE)")
		return err
	})
	address, err := url.Parse(l.postgres)
	if err != nil {
		return err
	}
	address.Path = "/" + name
	at.PostgresURL = address.String()
	db, err := service.OpenPostgres(l.postgres, name)
	if err != nil {
		return err
	}
	l.db = sqlx.NewDb(db, "pgx")
	l.onStop(func(context.Context) error { return l.db.Close() })
	return nil
}

// clearPostgres leaves nothing in the database but the table of the stock.
func (l *lane) clearPostgres(ctx context.Context) error {
	_, err := l.db.ExecContext(ctx, `DROP SCHEMA IF EXISTS public CASCADE; CREATE SCHEMA public;
		CREATE TABLE good_stock (goods_id BIGINT PRIMARY KEY, stock BIGINT NOT NULL, version BIGINT NOT NULL DEFAULT 0)`)
	return err
}

// blockedInPostgres reports whether the processes that serve some connections wait for others. Those that wait for each
// other do not: the server is about to end that.
func (l *lane) blockedInPostgres(ctx context.Context, pids []uint32) (bool, error) {
	var waits []struct{ PID, Blocker uint32 }
	list := strings.Trim(strings.ReplaceAll(fmt.Sprint(pids), " ", ", "), "[]")
	if err := l.db.SelectContext(ctx, &waits, `SELECT pid, blocker FROM unnest(ARRAY[`+list+`]) pid,
		unnest(pg_blocking_pids(pid) || pg_safe_snapshot_blocking_pids(pid)) blocker`); err != nil {
		return false, fmt.Errorf("ask PostgreSQL what waits: %w", err)
	}
	blockers := map[uint32][]uint32{}
	for _, w := range waits {
		blockers[w.PID] = append(blockers[w.PID], w.Blocker)
	}
	var reaches func(from, to uint32, steps int) bool
	reaches = func(from, to uint32, steps int) bool {
		return steps > 0 && slices.ContainsFunc(blockers[from], func(next uint32) bool {
			return next == to || reaches(next, to, steps-1)
		})
	}
	goesOn := func(pid uint32) bool { return len(blockers[pid]) == 0 || reaches(pid, pid, len(pids)) }
	return !slices.ContainsFunc(pids, goesOn), nil
}
