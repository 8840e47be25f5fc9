package wire

import (
	"context"
	"database/sql"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"stock/internal/must"
	"stock/internal/servers/serverstest"
)

// openSQL returns a pool with one connection through a proxy, and one that connects directly.
func openSQL(t *testing.T, set func(*mysql.Config)) (through, direct *sql.DB, p *Proxy, g *gate) {
	t.Helper()
	config, err := mysql.ParseDSN(shared.Database(t))
	must.Succeed(t, err)
	config.ParseTime = true
	config.Logger = &mysql.NopLogger{}
	if set != nil {
		set(config)
	}
	p, g = start(t, MySQL, config.Addr)
	open := func(addr string) *sql.DB {
		config := config.Clone()
		config.Addr = addr
		connector, err := mysql.NewConnector(config)
		must.Succeed(t, err)
		db := sql.OpenDB(connector)
		t.Cleanup(func() { db.Close() })
		return db
	}
	through, direct = open(p.Addr()), open(config.Addr)
	through.SetMaxOpenConns(1)
	return through, direct, p, g
}

func exec(t *testing.T, db interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}, query string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// table makes the table item with the rows (1, 10) and (2, 20).
func table(t *testing.T, db *sql.DB) {
	t.Helper()
	exec(t, db, "CREATE TABLE item (id INT PRIMARY KEY, stock INT NOT NULL) ENGINE=InnoDB")
	exec(t, db, "INSERT INTO item VALUES (1, 10), (2, 20)")
}

func stockOf(t *testing.T, db *sql.DB, id int) (units int) {
	t.Helper()
	must.Succeed(t, db.QueryRowContext(t.Context(), "SELECT stock FROM item WHERE id = ?", id).Scan(&units))
	return units
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

func TestStatementsAnswerAsTheyDoDirectly(t *testing.T) {
	t.Parallel()
	for _, interpolate := range []bool{true, false} {
		t.Run(fmt.Sprintf("interpolate %v", interpolate), func(t *testing.T) {
			t.Parallel()
			through, direct, _, g := openSQL(t, func(c *mysql.Config) {
				c.InterpolateParams, c.MultiStatements = interpolate, true
			})
			exec(t, direct, `CREATE TABLE every (i TINYINT, s SMALLINT UNSIGNED, m MEDIUMINT, n INT UNSIGNED, b BIGINT UNSIGNED,
				f FLOAT, d DOUBLE, e DECIMAL(20,4), t TEXT, v VARBINARY(20), da DATE, dt DATETIME(6), ti TIME(6),
				y YEAR, bo BIT(3))`)
			when := time.Date(2026, 2, 3, 4, 5, 6, 7000, time.UTC)
			args := []any{-7, 65535, -8388608, uint32(math.MaxUint32), uint64(1<<63 - 1), float32(1.5), 2.25e-10,
				"123.4567", "it's\n\\ ü", []byte{0, 255, 1}, when, when, "-30:01:02.000003", 2026, 5}
			insert := "INSERT INTO every VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
			exec(t, through, insert, args...)
			exec(t, through, insert, make([]any, len(args))...)
			e := g.find(t, "INSERT")
			if strings.Count(e.Text, "NULL") != len(args) || e.Reply != "OK, 1 row" {
				t.Errorf("%q was answered %q", e.Text, e.Reply)
			}
			wantNames(t, "writes", e.Writes, "mysql:every")
			for _, query := range []string{
				"SELECT * FROM every WHERE i = ?", "SELECT * FROM every WHERE i IS NULL OR i = ?",
				"SELECT b FROM every WHERE i = ? + 1", "SELECT COUNT(*), SUM(b), MAX(t) FROM every WHERE i <= ?",
				"SELECT oops FROM every WHERE i = ?", "SELECT ?", "DO ?",
				"SELECT ?, NULL, '', REPEAT('x', 300), REPEAT('y', 70000)",
				"SHOW TABLES LIKE ?", "DELETE FROM every WHERE i = ? + 1",
			} {
				got, gotErr := rows(t, through, query, -7)
				want, wantErr := rows(t, direct, query, -7)
				if !reflect.DeepEqual(got, want) || fmt.Sprint(gotErr) != fmt.Sprint(wantErr) {
					t.Errorf("%s: %v, %v, want %v, %v", query, got, gotErr, want, wantErr)
				}
			}
			first := g.find(t, "SELECT * FROM every WHERE i = -7")
			const want = `1 row: -7, 65535, -8388608, 4294967295, 9223372036854775807, 1.5, `
			if !strings.HasPrefix(first.Reply, want) {
				t.Errorf("the reply is %q, want %q", first.Reply, want)
			}
		})
	}
}

func TestArgumentsOfPreparedStatementsAreShown(t *testing.T) {
	t.Parallel()
	through, _, _, g := openSQL(t, func(c *mysql.Config) { c.InterpolateParams = false })
	const query = "SELECT '?', ? /* ? */, ?, ?, ?, ?, ?"
	when := time.Date(2026, 2, 3, 4, 5, 6, 7000, time.UTC)
	_, err := rows(t, through, query, int64(-1<<62), 0.5, "it's", []byte{0, 255}, nil, when)
	must.Succeed(t, err)
	e := g.find(t, "SELECT '?'")
	const want = `SELECT '?', -4611686018427387904 /* ? */, 0.5, 'it\'s', 0x00ff, NULL, '2026-02-03 04:05:06.000007'`
	if e.Text != want {
		t.Errorf("the text is %s, want %s", e.Text, want)
	}
	long := strings.Repeat("x", 80<<20/100)
	if _, err := rows(t, through, "SELECT LENGTH(?)", long); err != nil {
		t.Fatal(err)
	}
}

func TestSeveralResults(t *testing.T) {
	t.Parallel()
	through, direct, _, g := openSQL(t, func(c *mysql.Config) { c.MultiStatements = true })
	table(t, direct)
	const query = "UPDATE item SET stock = 11 WHERE id = 1; SELECT stock FROM item ORDER BY id; SELECT 'a', 2; DO 1"
	got, err := rows(t, through, query)
	if want := "[[11] [20] [[97] 2]]"; err != nil || fmt.Sprint(got) != want {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	e := g.find(t, "UPDATE")
	if want := "OK, 1 row; 2 rows: 11; 1 row: 'a', 2; OK, 0 rows"; e.Reply != want {
		t.Errorf("the reply is %q, want %q", e.Reply, want)
	}
	wantNames(t, "reads", e.Reads, "mysql:item")
	wantNames(t, "writes", e.Writes, "mysql:item")
	exec(t, direct, "CREATE PROCEDURE two() BEGIN SELECT 1; SELECT 2; END")
	if got, err := rows(t, through, "CALL two()"); err != nil || len(got) != 2 {
		t.Errorf("CALL: %v, %v", got, err)
	}
	if got, err := rows(t, through, "SELECT 1; SELECT oops"); err == nil {
		t.Errorf("an error in the second statement was lost: %v", got)
	}
	if _, err := rows(t, through, "SELECT 1"); err != nil {
		t.Error(err)
	}
}

func TestLargeResult(t *testing.T) {
	t.Parallel()
	through, direct, _, g := openSQL(t, nil)
	exec(t, direct, "SET GLOBAL max_allowed_packet = 64*1024*1024")
	var text string
	must.Succeed(t, through.QueryRowContext(t.Context(), "SELECT REPEAT('x', 17000000)").Scan(&text))
	if len(text) != 17_000_000 {
		t.Errorf("%d bytes", len(text))
	}
	if e := g.find(t, "SELECT REPEAT('x', 17"); !strings.HasPrefix(e.Reply, "1 row") {
		t.Errorf("the reply is %q", e.Reply)
	}
	got, err := rows(t, through, "SELECT seq, REPEAT('y', 100) FROM seq_1_to_20000")
	if err != nil || len(got) != 20000 {
		t.Errorf("%d rows, %v", len(got), err)
	}
}

// A request that is held may be lost, or its reply may, or its client may go meanwhile.
func TestHeldRequests(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		action Action
		leaves bool // the client goes before the action
		want   int  // units that are left
	}{{LoseBoth, false, 10}, {LoseReply, false, 9}, {Pass, true, 9}, {LoseBoth, true, 10}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			t.Parallel()
			through, direct, _, g := openSQL(t, nil)
			table(t, direct)
			g.holding("UPDATE")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan error, 1)
			go func() {
				_, err := through.ExecContext(ctx, "UPDATE item SET stock = stock - 1 WHERE id = 1")
				done <- err
			}()
			h := g.next(t)
			if c.leaves {
				cancel()
				select {
				case <-h.gone:
				case <-time.After(limit):
					t.Fatal("gone was not closed")
				}
			}
			h.decide <- c.action
			if err := <-done; err == nil {
				t.Error("the client has got a reply")
			}
			e := g.find(t, "UPDATE")
			if lost := g.err(e) != nil; lost != (c.action == LoseBoth) {
				t.Errorf("Answered got %v", g.err(e))
			}
			if got := stockOf(t, direct, 1); got != c.want {
				t.Errorf("%d units, want %d", got, c.want)
			}
			g.holding("")
			exec(t, through, "DO 1") // on a new connection
		})
	}
}

func TestAConnectionThatIsKilled(t *testing.T) {
	t.Parallel()
	through, direct, p, g := openSQL(t, nil)
	conn, err := through.Conn(t.Context())
	must.Succeed(t, err)
	defer conn.Close()
	var id uint32
	must.Succeed(t, conn.QueryRowContext(t.Context(), "SELECT CONNECTION_ID()").Scan(&id))
	if e := g.find(t, "SELECT CONNECTION_ID"); e.Store != "mysql" || !e.Local {
		t.Errorf("%+v, want it to be local", e)
	}
	g.holding("DO 2")
	done := make(chan error, 1)
	go func() {
		_, err := conn.ExecContext(context.Background(), "DO 2")
		done <- err
	}()
	h := g.next(t)
	exec(t, direct, fmt.Sprintf("KILL %d", id))
	select {
	case <-h.gone:
	case <-time.After(limit):
		t.Fatal("gone was not closed")
	}
	h.decide <- Pass
	if err := <-done; err == nil {
		t.Error("a killed connection was answered")
	}
	if e := g.find(t, "DO 2"); g.err(e) == nil {
		t.Error("Answered got no error")
	}
	conn.Close()
	g.holding("")
	p.Refuse(true)
	p.CutAll()
	if err := through.PingContext(t.Context()); err == nil {
		t.Error("a connection was accepted")
	}
	p.Refuse(false)
	if err := through.PingContext(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestAConnectionIsOpeningUntilItsClientHasLoggedIn(t *testing.T) {
	t.Parallel()
	through, _, p, _ := openSQL(t, nil)
	if p.Busy() {
		t.Error("nobody has connected")
	}
	client := dial(t, p)
	if _, err := io.ReadFull(client, make([]byte, 4)); err != nil { // of the greeting
		t.Fatal(err)
	}
	if !p.Busy() {
		t.Error("the client has not logged in")
	}
	client.Close()
	exec(t, through, "DO 1")
	serverstest.Eventually(t, "one client has logged in, and the other has gone", func() bool { return !p.Busy() })
}

func TestAClientMayNameWhatTheServerDoesNotOffer(t *testing.T) {
	t.Parallel()
	const protocol41, attributes = 1 << 9, 1 << 27
	login := frame{raw: binary.LittleEndian.AppendUint32([]byte{4, 0, 0, 1}, protocol41|attributes)}
	if _, err := (&mysqlSession{}).request(login); err != nil {
		t.Fatal(err)
	}
	if got := binary.LittleEndian.Uint32(login.raw[4:]); got != protocol41 {
		t.Errorf("the server is told %#x", got)
	}
	login.raw = binary.LittleEndian.AppendUint32([]byte{4, 0, 0, 1}, protocol41|capabilityTLS)
	if _, err := (&mysqlSession{}).request(login); err == nil {
		t.Error("TLS is not refused, but no proxy can read it")
	}
}
