package wire

import (
	"context"
	"database/sql"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"

	"stock/internal/must"
	"stock/internal/servers/serverstest"
)

// sqlServers are what is tested in the same way on MySQL and on PostgreSQL.
var sqlServers = map[string]struct {
	open     func(t *testing.T) (through, direct *sql.DB, p *Proxy, g *gate)
	id, kill string // statements about a connection
	// take takes a unit of item 1. The client hangs up when it is told to leave.
	take func(t *testing.T, db *sql.DB) (do func() error, leave func())
}{
	"mysql": {
		func(t *testing.T) (through, direct *sql.DB, p *Proxy, g *gate) {
			return openSQL(t, func(*mysql.Config) {})
		},
		"SELECT CONNECTION_ID()", "KILL %d",
		func(t *testing.T, db *sql.DB) (do func() error, leave func()) {
			ctx, cancel := context.WithCancel(t.Context())
			return func() error {
				_, err := db.ExecContext(ctx, "UPDATE item SET stock = stock - 1 WHERE id = 1")
				return err
			}, cancel
		},
	},
	"postgres": {
		func(t *testing.T) (through, direct *sql.DB, p *Proxy, g *gate) {
			return openPostgres(t, pgx.QueryExecModeExec)
		},
		"SELECT pg_backend_pid()", "SELECT pg_terminate_backend(%d)",
		func(t *testing.T, db *sql.DB) (do func() error, leave func()) {
			conn := rawConn(t, db)
			db.SetMaxOpenConns(2)
			return func() error {
				_, err := conn.Exec(t.Context(), "UPDATE item SET stock = stock - $1 WHERE id = 1", 1)
				return err
			}, func() { conn.PgConn().Conn().Close() }
		},
	},
}

func exec(t *testing.T, db interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}, query string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// items makes the table item with the rows (1, 10) and (2, 20).
func items(t *testing.T, db *sql.DB) {
	t.Helper()
	exec(t, db, "CREATE TABLE item (id INT PRIMARY KEY, stock INT NOT NULL)")
	exec(t, db, "INSERT INTO item VALUES (1, 10), (2, 20)")
}

// wantStock fails the test unless so many units of item 1 are left.
func wantStock(t *testing.T, db *sql.DB, want int) {
	t.Helper()
	var units int
	must.Succeed(t, db.QueryRowContext(t.Context(), "SELECT stock FROM item WHERE id = 1").Scan(&units))
	if units != want {
		t.Errorf("%d units, want %d", units, want)
	}
}

// rows returns all values of a query, as the driver makes them.
func rows(t *testing.T, db *sql.DB, query string, args ...any) (values [][]any, err error) {
	t.Helper()
	r, err := db.QueryContext(t.Context(), query, args...)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	for more := true; more; more = r.NextResultSet() {
		columns, err := r.Columns()
		if err != nil {
			return nil, err
		}
		for r.Next() {
			row, into := make([]any, len(columns)), make([]any, len(columns))
			for i := range row {
				into[i] = &row[i]
			}
			if err := r.Scan(into...); err != nil {
				return nil, err
			}
			values = append(values, row)
		}
	}
	return values, r.Err()
}

// wantSame fails the test unless queries with the argument -7 are answered through a proxy as they are directly.
func wantSame(t *testing.T, through, direct *sql.DB, queries ...string) {
	t.Helper()
	for _, query := range queries {
		got, gotErr := rows(t, through, query, -7)
		want, wantErr := rows(t, direct, query, -7)
		if !reflect.DeepEqual(got, want) || fmt.Sprint(gotErr) != fmt.Sprint(wantErr) {
			t.Errorf("%s: %v, %v, want %v, %v", query, got, gotErr, want, wantErr)
		}
	}
}

// await waits until the client or the server of a request has gone.
func (h *heldExchange) await(t *testing.T) {
	t.Helper()
	select {
	case <-h.gone:
	case <-time.After(limit):
		t.Fatal("gone was not closed")
	}
}

// A request that is held may be lost, or its reply may, or its client may go meanwhile.
func TestHeldRequests(t *testing.T) {
	t.Parallel()
	for name, server := range sqlServers {
		for _, c := range []struct {
			action Action
			leaves bool // the client goes before the action
			want   int  // units that are left
		}{{LoseBoth, false, 10}, {LoseReply, false, 9}, {Pass, true, 9}, {LoseBoth, true, 10}} {
			t.Run(fmt.Sprint(name, c), func(t *testing.T) {
				t.Parallel()
				through, direct, p, g := server.open(t)
				items(t, direct)
				g.holding("UPDATE")
				do, leave := server.take(t, through)
				defer leave()
				done := make(chan error, 1)
				go func() { done <- do() }()
				h := g.next(t)
				if c.leaves {
					p.Refuse(true) // PostgreSQL's client would have its server cancel the statement
					leave()
					h.await(t)
				}
				h.decide <- c.action
				if err := <-done; err == nil {
					t.Error("the client has got a reply")
				}
				e := g.find(t, "UPDATE")
				if lost := g.err(e) != nil; lost != (c.action == LoseBoth) {
					t.Errorf("Answered got %v", g.err(e))
				}
				wantStock(t, direct, c.want)
				p.Refuse(false)
				g.holding("")
				exec(t, through, "SELECT 1") // on a new connection
			})
		}
	}
}

func TestAConnectionThatTheServerEnds(t *testing.T) {
	t.Parallel()
	for name, server := range sqlServers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			through, direct, p, g := server.open(t)
			conn, err := through.Conn(t.Context())
			must.Succeed(t, err)
			defer conn.Close()
			var id uint32
			must.Succeed(t, conn.QueryRowContext(t.Context(), server.id).Scan(&id))
			if e := g.find(t, server.id); e.Store != name || !e.Local || name == "postgres" && e.Conn.PID != id {
				t.Errorf("%+v, want it to be local and of process %d", e, id)
			}
			g.holding("SELECT 2")
			done := make(chan error, 1)
			go func() {
				_, err := conn.ExecContext(context.Background(), "SELECT 2")
				done <- err
			}()
			h := g.next(t)
			exec(t, direct, fmt.Sprintf(server.kill, id))
			h.await(t)
			h.decide <- Pass
			if err := <-done; err == nil {
				t.Error("a connection that was ended was answered")
			}
			if e := g.find(t, "SELECT 2"); g.err(e) == nil {
				t.Error("Answered got no error")
			}
			conn.Close()
			g.holding("")
			serverstest.Eventually(t, "nothing is under way", func() bool { return !p.Busy() })
			p.Refuse(true)
			p.CutAll()
			if err := through.PingContext(t.Context()); err == nil {
				t.Error("a connection was accepted")
			}
			p.Refuse(false)
			must.Succeed(t, through.PingContext(t.Context()))
		})
	}
}
