package servers_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"stock/internal/must"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
)

// What a lock, a commit and a node are worth on Galera. docs/engines.md relies on it.
func TestGalera(t *testing.T) {
	g, err := servers.StartGalera(t.Context(), servers.GaleraOptions{Args: []string{"--wsrep-sync-wait=7"}})
	if errors.Is(err, servers.ErrNotInstalled) && os.Getenv("STOCK_REQUIRE_GALERA") == "" {
		t.Skip(err)
	}
	must.Succeed(t, err)
	serverstest.StopAfterTest(t, g)
	_, err = g.Nodes[0].CreateDatabase(t.Context(), "stock")
	must.Succeed(t, err)
	a, b := connectTo(t, g.Nodes[0]), connectTo(t, g.Nodes[1])
	a.must("CREATE TABLE item (id INT PRIMARY KEY, stock INT) ENGINE=InnoDB")
	a.must("INSERT INTO item VALUES (1, 10)")

	t.Run("a named lock is that of a node", func(t *testing.T) {
		if a.number("SELECT GET_LOCK('item', 0)") != 1 || b.number("SELECT GET_LOCK('item', 0)") != 1 {
			t.Error("GET_LOCK did not give the lock to both nodes")
		}
	})
	for _, locking := range []string{"FOR UPDATE", "FOR UPDATE SKIP LOCKED"} {
		t.Run(locking+" locks a row on one node, and the second COMMIT is refused", func(t *testing.T) {
			before := a.number("SELECT stock FROM item")
			for _, node := range []session{a, b} {
				node.must("BEGIN")
				if read := node.number("SELECT stock FROM item WHERE id = 1 " + locking); read != before {
					t.Errorf("read %d, want %d", read, before)
				}
				node.must("UPDATE item SET stock = stock - 1 WHERE id = 1")
			}
			a.must("COMMIT")
			b.wantError("COMMIT", 1213)
			if left := b.number("SELECT stock FROM item"); left != before-1 {
				t.Errorf("%d are left, want %d", left, before-1)
			}
		})
	}
	t.Run("a write depends on nothing that was only read", func(t *testing.T) {
		b.must("BEGIN")
		read := b.number("SELECT stock FROM item WHERE id = 1")
		a.must("UPDATE item SET stock = stock - 1 WHERE id = 1")
		for connectTo(t, g.Nodes[1]).number("SELECT stock FROM item") == read {
			t.Error("another session of the node did not wait for the write")
		}
		b.must("UPDATE item SET stock = ? WHERE id = 1", read-1)
		b.must("COMMIT")
		if left := a.number("SELECT stock FROM item"); left != read-1 {
			t.Errorf("%d are left, want %d: an update is lost", left, read-1)
		}
	})
	t.Run("a transaction in one message loses the error of a rollback", func(t *testing.T) { losesError(t, g) })
	t.Run("a node that was killed gets what it has missed", func(t *testing.T) {
		g.Nodes[1].Kill()
		a.must("UPDATE item SET stock = 5")
		must.Succeed(t, g.Restart(t.Context(), g.Nodes[1]))
		if left := connectTo(t, g.Nodes[1]).number("SELECT stock FROM item"); left != 5 {
			t.Errorf("the node has %d, want 5", left)
		}
	})
	t.Run("a node without a majority refuses", func(t *testing.T) {
		must.Succeed(t, g.Isolate(t.Context(), g.Nodes[1]))
		b := connectTo(t, g.Nodes[1])
		b.wantError("UPDATE item SET stock = 4", 1180) // it waits until the node knows
		b.wantError("UPDATE item SET stock = 4", 1047)
		a.must("UPDATE item SET stock = 3")
		must.Succeed(t, g.Reconnect(t.Context(), g.Nodes[1]))
		if err := g.Nodes[1].Await(t.Context(), func(ctx context.Context) error {
			_, err := b.conn.ExecContext(ctx, "SELECT stock FROM item")
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if left := b.number("SELECT stock FROM item"); left != 3 {
			t.Errorf("the node has %d, want 3", left)
		}
	})
}

// session is a connection to a node.
type session struct {
	t    *testing.T
	conn *sql.Conn
}

func connectTo(t *testing.T, node *servers.MySQL) session {
	t.Helper()
	conn, err := open(t, node.DSN("stock")).Conn(t.Context())
	must.Succeed(t, err)
	return session{t, conn}
}

func (s session) must(query string, args ...any) {
	s.t.Helper()
	if _, err := s.conn.ExecContext(s.t.Context(), query, args...); err != nil {
		s.t.Fatalf("%s: %v", query, err)
	}
}

func (s session) number(query string) (n int) {
	s.t.Helper()
	if err := s.conn.QueryRowContext(s.t.Context(), query).Scan(&n); err != nil {
		s.t.Fatalf("%s: %v", query, err)
	}
	return n
}

func (s session) wantError(query string, number uint16) {
	s.t.Helper()
	_, err := s.conn.ExecContext(s.t.Context(), query)
	if answer, ok := errors.AsType[*mysql.MySQLError](err); !ok || answer.Number != number {
		s.t.Errorf("%s: %v, want error %d", query, err, number)
	}
}

// losesError has clients of two nodes sell, each with a transaction in one message, until a sale that was confirmed is
// not in the stock. The service sends such statements one by one: see Store.messages of package mysql.
func losesError(t *testing.T, g *servers.Galera) {
	const sell = "START TRANSACTION; UPDATE item SET stock = stock - 1; SET @changed = ROW_COUNT(); " +
		"INSERT INTO sale VALUES (); COMMIT"
	reads := connectTo(t, g.Nodes[0])
	reads.must("CREATE TABLE sale (id INT AUTO_INCREMENT PRIMARY KEY) ENGINE=InnoDB")
	deadline := time.Now().Add(10 * time.Second)
	for time.Now().Before(deadline) {
		before := reads.number("SELECT stock FROM item")
		var sold atomic.Int64
		var sellers sync.WaitGroup
		for i := range 6 {
			seller := connectTo(t, g.Nodes[i%2])
			sellers.Go(func() {
				for range 40 {
					if _, err := seller.conn.ExecContext(t.Context(), sell); err == nil {
						sold.Add(1)
					} else {
						_, _ = seller.conn.ExecContext(t.Context(), "ROLLBACK")
					}
				}
			})
		}
		sellers.Wait()
		if deducted := before - reads.number("SELECT stock FROM item"); int64(deducted) != sold.Load() {
			t.Logf("%d sales were confirmed, and %d units deducted", sold.Load(), deducted)
			return
		}
	}
	t.Skip("every sale that was confirmed was deducted")
}
