package wire

import (
	"database/sql"
	"encoding/binary"
	"fmt"
	"io"
	"math"
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
	set(config)
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
			wantSame(t, through, direct,
				"SELECT * FROM every WHERE i = ?", "SELECT * FROM every WHERE i IS NULL OR i = ?",
				"SELECT b FROM every WHERE i = ? + 1", "SELECT COUNT(*), SUM(b), MAX(t) FROM every WHERE i <= ?",
				"SELECT oops FROM every WHERE i = ?", "SELECT ?", "DO ?",
				"SELECT ?, NULL, '', REPEAT('x', 300), REPEAT('y', 70000)",
				"SHOW TABLES LIKE ?", "DELETE FROM every WHERE i = ? + 1",
			)
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
	when := time.Date(2026, 2, 3, 4, 5, 6, 7000, time.UTC)
	_, err := rows(t, through, "SELECT '?', ? /* ? */, ?, ?, ?, ?, ?, ?",
		int64(-1<<62), 0.5, 5000029.0, "it's", []byte{0, 255}, nil, when)
	must.Succeed(t, err)
	const want = `SELECT '?', -4611686018427387904 /* ? */, 0.5, 5000029, 'it\'s', 0x00ff, NULL, ` +
		`'2026-02-03 04:05:06.000007'`
	if e := g.find(t, "SELECT '?'"); e.Text != want {
		t.Errorf("the text is %s, want %s", e.Text, want)
	}
	_, err = rows(t, through, "SELECT LENGTH(?)", strings.Repeat("x", 800_000)) // in packets of its own
	must.Succeed(t, err)
}

func TestSeveralResults(t *testing.T) {
	t.Parallel()
	through, direct, _, g := openSQL(t, func(c *mysql.Config) { c.MultiStatements = true })
	items(t, direct)
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

func TestAConnectionIsOpeningUntilItsClientHasLoggedIn(t *testing.T) {
	t.Parallel()
	through, _, p, _ := openSQL(t, func(*mysql.Config) {})
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
