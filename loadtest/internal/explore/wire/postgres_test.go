package wire

import (
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/stdlib"

	"stock/internal/must"
)

// openPostgres returns a pool with one connection through a proxy, and one that connects directly.
func openPostgres(t *testing.T, mode pgx.QueryExecMode) (through, direct *sql.DB, p *Proxy, g *gate) {
	t.Helper()
	config, err := pgx.ParseConfig(shared.Postgres(t))
	must.Succeed(t, err)
	config.DefaultQueryExecMode = mode
	p, g = start(t, Postgres, fmt.Sprintf("%s:%d", config.Host, config.Port))
	open := func(config pgx.ConnConfig) *sql.DB {
		db := stdlib.OpenDB(config)
		t.Cleanup(func() { db.Close() })
		return db
	}
	direct = open(*config)
	through = open(*throughProxy(t, config, p))
	through.SetMaxOpenConns(1)
	return through, direct, p, g
}

// throughProxy returns a configuration whose connections begin with a request for TLS, as those of most clients do.
func throughProxy(t *testing.T, config *pgx.ConnConfig, p *Proxy) *pgx.ConnConfig {
	t.Helper()
	proxied, err := pgx.ParseConfig(fmt.Sprintf("postgres://%s:%s@%s/%s?sslmode=prefer",
		config.User, config.Password, p.Addr(), config.Database))
	must.Succeed(t, err)
	proxied.DefaultQueryExecMode = config.DefaultQueryExecMode
	return proxied
}

// modes are the ways in which clients send statements.
var modes = []pgx.QueryExecMode{
	pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
	pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
}

func TestPostgresAnswersAsItDoesDirectly(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			through, direct, _, g := openPostgres(t, mode)
			exec(t, direct, `CREATE TABLE every (s SMALLINT, i INT, b BIGINT, f FLOAT4, d FLOAT8, n NUMERIC(20,4), t TEXT,
				v BYTEA, da DATE, ts TIMESTAMPTZ, bo BOOLEAN, u UUID, j JSONB)`)
			when := time.Date(2026, 2, 3, 4, 5, 6, 7000, time.UTC)
			args := []any{-7, 1 << 30, 1 << 60, 1.5, 2.25e-10, "123.4567", "it's\n\\ ü", []byte{0, 255, 1},
				when, when, true, "123e4567-e89b-12d3-a456-426614174000", `{"a": 1}`}
			insert := "INSERT INTO every VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)"
			exec(t, through, insert, args...)
			exec(t, through, insert, make([]any, len(args))...)
			e := g.find(t, "INSERT")
			if strings.Count(strings.ToUpper(e.Text), "NULL") != len(args) || e.Reply != "OK, 1 row" || e.Local {
				t.Errorf("%q was answered %q, local %v", e.Text, e.Reply, e.Local)
			}
			wantSame(t, through, direct,
				"SELECT * FROM every WHERE s = $1", "SELECT * FROM every WHERE s IS NULL OR s = $1",
				"SELECT COUNT(*), SUM(b), MAX(t) FROM every WHERE s <= $1", "SELECT oops FROM every WHERE s = $1",
				"SELECT $1::int, NULL, '', REPEAT('x', 300), REPEAT('y', 70000)", "SELECT 1 / ($1::int + 7)",
				"DELETE FROM every WHERE s = $1 + 1", "UPDATE every SET i = 5 WHERE s = $1 RETURNING i, t",
			)
			if got := g.find(t, "UPDATE every").Reply; got != `1 row: 5, 'it''s`+"\n"+`\ ü'` {
				t.Errorf("the reply is %q", got)
			}
			if got := g.find(t, "DELETE").Reply; got != "OK, 0 rows" {
				t.Errorf("the reply is %q", got)
			}
			first := g.find(t, "SELECT * FROM every WHERE s =")
			const want = "1 row: -7, 1073741824, 1152921504606846976, 1.5, 2.25e-10, 123.4567, 'it''s"
			if !strings.HasPrefix(first.Reply, want) || !strings.Contains(first.Text, "-7") {
				t.Errorf("%q is answered %q, want %q", first.Text, first.Reply, want)
			}
			exec(t, through, "TRUNCATE every") // the connection is still in order
		})
	}
}

func TestArgumentsOfStatementsOfPostgresAreShown(t *testing.T) {
	t.Parallel()
	through, _, _, g := openPostgres(t, pgx.QueryExecModeCacheStatement)
	when := time.Date(2026, 2, 3, 4, 5, 6, 7000, time.UTC)
	for range 2 { // the second time, it is prepared already
		_, err := rows(t, through, `SELECT '$1', "$1".a /* $2 */, 5 - $1::bigint, $2::float8, $3::text, $4::bytea, $5::int,
			$6::timestamp FROM (SELECT 1 AS a) AS "$1"`, int64(-1<<62), 0.5, "it's", []byte{0, 255}, nil, when)
		must.Succeed(t, err)
		e := g.find(t, "SELECT '$1'")
		const want = `SELECT '$1', "$1".a /* $2 */, 5 - (-4611686018427387904)::bigint, 0.5::float8, 'it''s'::text, ` +
			`'\x00ff'::bytea, NULL::int, '2026-02-03 04:05:06.000007'::timestamp FROM (SELECT 1 AS a) AS "$1"`
		if got := strings.Join(strings.Fields(e.Text), " "); got != want {
			t.Errorf("the text is %s, want %s", got, want)
		}
		const row = `1 row: '$1', 1, 4611686018427387909, 0.5, 'it''s', '\x00ff', NULL, '2026-02-03 04:05:06.000007'`
		if e.Reply != row {
			t.Errorf("the reply is %s, want %s", e.Reply, row)
		}
	}
	if e := g.find(t, "PREPARE SELECT '$1'"); !e.Local {
		t.Error("to prepare a statement is not local")
	}
}

func TestABatchIsOneExchange(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		through, direct, _, g := openPostgres(t, mode)
		items(t, direct)
		batch := &pgx.Batch{}
		batch.Queue("UPDATE item SET stock = stock - $1 WHERE id = $2", 1, 2)
		batch.Queue("SELECT stock FROM item WHERE id = $1", 2)
		must.Succeed(t, rawConn(t, through).SendBatch(t.Context(), batch).Close())
		e := g.find(t, "UPDATE item SET stock = stock - ")
		if !strings.Contains(e.Text, "SELECT stock") || e.Reply != "OK, 1 row; 1 row: 19" {
			t.Errorf("%v: %q was answered %q", mode, e.Text, e.Reply)
		}
	}
}

func TestTransactionsOfPostgres(t *testing.T) {
	t.Parallel()
	through, direct, _, g := openPostgres(t, pgx.QueryExecModeSimpleProtocol)
	items(t, direct)
	conn, err := through.Conn(t.Context())
	must.Succeed(t, err)
	defer conn.Close()
	for _, c := range []struct {
		text  string
		local bool
		reply string
	}{
		{"BEGIN", true, "OK"},
		{"SELECT stock FROM item WHERE id = 1", false, "1 row: 10"},
		{"COMMIT", true, "OK"}, // of a transaction that has changed nothing
		{"BEGIN", true, "OK"},
		{"SELECT stock FROM item WHERE id = 1 FOR UPDATE", false, "1 row: 10"},
		{"ROLLBACK", false, "OK"},
		{"BEGIN", true, "OK"},
		{"UPDATE item SET stock = 9 WHERE id = 1", false, "OK, 1 row"},
		{"SELECT oops", true, `error 42703: column "oops" does not exist`},
		{"COMMIT", true, "ROLLBACK"}, // the error has given back what was locked
		{"BEGIN", true, "OK"},
		{"UPDATE item SET stock = 9 WHERE id = 1", false, "OK, 1 row"},
		{"SAVEPOINT s", true, "OK"},
		{"SELECT oops", true, `error 42703: column "oops" does not exist`},
		{"ROLLBACK TO s", false, "OK"},
		{"COMMIT", false, "OK"},
		{"SELECT version() LIKE 'Postgre%'", true, "1 row: TRUE"},
		{"", true, "OK"},
	} {
		_, err := conn.ExecContext(t.Context(), c.text)
		if refused := strings.HasPrefix(c.reply, "error"); refused != (err != nil) {
			t.Fatalf("%s: %v", c.text, err)
		}
		g.mu.Lock()
		e := g.answered[len(g.answered)-1]
		g.mu.Unlock()
		if e.Text != c.text && e.Text != "SYNC" || e.Reply != c.reply || e.Local != c.local || e.Store != "postgres" {
			t.Errorf("%q: local %v, answered %q, want %q: %v, %q", e.Text, e.Local, e.Reply, c.text, c.local, c.reply)
		}
		if !e.Local {
			wantNames(t, c.text, e.Writes, everything)
		}
	}
}

func TestWhatNobodyNoticesInPostgres(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		local bool
		texts string // of which the last one counts, separated by |
	}{
		{true, "SET search_path = a"}, {true, "START TRANSACTION READ ONLY"}, {true, "SHOW server_version"},
		{true, "SELECT pg_catalog.version(), current_schema(), set_config('a', 'b', false)"}, {true, "DEALLOCATE ALL"},
		{true, `SELECT t.oid FROM pg_catalog.pg_type t JOIN "pg_namespace" n ON n.oid = t.typnamespace WHERE t.oid = $1`},
		{true, "SELECT 1 -- FROM item\n"}, {true, "SELECT $x$ FOR UPDATE $x$, 'INTO', E'\\' DELETE '"},
		{true, "DISCARD ALL"}, {true, "SELECT pg_advisory_unlock_all(); CLOSE ALL; UNLISTEN *; RESET ALL;"},
		{true, "PREPARE p AS DELETE FROM item"}, {true, "BEGIN|SELECT 1"}, {true, "BEGIN|SELECT a FROM item|END"},
		{true, "BEGIN|SELECT a, COUNT(*) FROM item WHERE b IN (1, $2::numeric(3)) GROUP BY a|COMMIT"},
		{false, "SELECT 1 FROM item"}, {false, "TABLE item"}, {false, "SET CONSTRAINTS ALL IMMEDIATE"},
		{false, "SELECT put(1)"}, {false, `SELECT "put" (1)`}, {false, "SELECT shop.abs(1)"}, {false, "SELECT nextval('s')"},
		{false, "SELECT 1 FROM pg_locks"}, {false, "SELECT 1 FROM pg_stat_activity"}, {false, "CALL p()"},
		{false, "SELECT pg_advisory_lock(1)"}, {false, "SELECT pg_try_advisory_xact_lock(1)"},
		{false, "SELECT pg_advisory_lock(1)|SELECT pg_advisory_unlock_all()"},
		{false, "SELECT pg_advisory_lock(1)|DISCARD ALL"},
		{false, "PREPARE TRANSACTION 'a'"}, {false, "COMMIT PREPARED 'a'"}, {false, "NOTIFY a"}, {false, "DO $$BEGIN END$$"},
		{false, "SELECT 1; UPDATE item SET a = 1"}, {false, "COPY item FROM STDIN"}, {false, "LOCK TABLE item"},
		{false, "BEGIN|WITH c AS (DELETE FROM item RETURNING a) SELECT a FROM c|COMMIT"},
		{false, "BEGIN|SELECT a INTO TEMP b FROM item|COMMIT"}, {false, "BEGIN|SELECT put(a) FROM item|COMMIT"},
		{false, "BEGIN|SELECT a FROM item FOR NO KEY UPDATE|COMMIT"}, {false, "BEGIN|SELECT pg_advisory_xact_lock(1)|COMMIT"},
		{false, "BEGIN|SAVEPOINT a|UPDATE item SET a = 1|ROLLBACK TO a"},
		// What such a transaction sees is what was committed before its first statement.
		{false, "BEGIN ISOLATION LEVEL REPEATABLE READ|SELECT 1"},
		{false, "SET default_transaction_isolation = 'repeatable-read'|BEGIN|SELECT a FROM pg_class"},
		{true, "BEGIN ISOLATION LEVEL REPEATABLE READ|SELECT a FROM item|SELECT 1"},
		{false, "BEGIN ISOLATION LEVEL SERIALIZABLE|SELECT a FROM item|COMMIT"},
	} {
		s, local := postgresState{}, false
		for text := range strings.SplitSeq(c.texts, "|") {
			local = s.analyse(text)
		}
		if local != c.local {
			t.Errorf("%s: local %v, want %v", c.texts, local, c.local)
		}
	}
}

// rawConn returns the connection of the driver.
func rawConn(t *testing.T, db *sql.DB) (conn *pgx.Conn) {
	t.Helper()
	of, err := db.Conn(t.Context())
	must.Succeed(t, err)
	t.Cleanup(func() { of.Close() })
	must.Succeed(t, of.Raw(func(driver any) error { conn = driver.(*stdlib.Conn).Conn(); return nil }))
	return conn
}

func TestCopy(t *testing.T) {
	t.Parallel()
	through, direct, _, g := openPostgres(t, pgx.QueryExecModeCacheStatement)
	items(t, direct)
	conn := rawConn(t, through)
	source := pgx.CopyFromSlice(1000, func(i int) ([]any, error) { return []any{int32(10 + i), int32(i)}, nil })
	columns := []string{"id", "stock"}
	if n, err := conn.CopyFrom(t.Context(), pgx.Identifier{"item"}, columns, source); err != nil || n != 1000 {
		t.Fatalf("%d rows, %v", n, err)
	}
	if e := g.find(t, "copy"); e.Reply != "OK, 1000 rows" || e.Local {
		t.Errorf("%+v", e)
	}
	bad := errors.New("nothing to copy")
	source = pgx.CopyFromSlice(5, func(int) ([]any, error) { return nil, bad })
	if _, err := conn.CopyFrom(t.Context(), pgx.Identifier{"item"}, columns, source); err == nil ||
		!strings.Contains(err.Error(), bad.Error()) {
		t.Errorf("the error is %v", err)
	}
	var out strings.Builder
	if _, err := conn.PgConn().CopyTo(t.Context(), &out, "COPY (SELECT id FROM item ORDER BY id) TO STDOUT"); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(out.String(), "\n"); lines != 1002 {
		t.Errorf("%d lines", lines)
	}
	if e := g.find(t, "COPY"); e.Reply != "OK, 1002 rows" {
		t.Errorf("the reply is %q", e.Reply)
	}
}

// A client may want answers before it sends Sync.
func TestFlush(t *testing.T) {
	t.Parallel()
	through, direct, _, g := openPostgres(t, pgx.QueryExecModeCacheStatement)
	items(t, direct)
	frontend := rawConn(t, through).PgConn().Frontend()
	send := func(want string, messages ...pgproto3.FrontendMessage) {
		t.Helper()
		for _, m := range messages {
			frontend.Send(m)
		}
		must.Succeed(t, frontend.Flush())
		for kind := range strings.FieldsSeq(want) {
			m, err := frontend.Receive()
			if got := strings.TrimPrefix(fmt.Sprintf("%T", m), "*pgproto3."); err != nil || got != kind {
				t.Fatalf("%s, %v, want %s", got, err, kind)
			}
		}
	}
	send("ParseComplete ParameterDescription NoData",
		&pgproto3.Parse{Name: "take", Query: "UPDATE item SET stock = stock - $1 WHERE id = 1"},
		&pgproto3.Describe{ObjectType: 'S', Name: "take"}, &pgproto3.Flush{})
	if e := g.find(t, "PREPARE UPDATE"); !e.Local {
		t.Error("to prepare a statement is not local")
	}
	take := []pgproto3.FrontendMessage{
		&pgproto3.Bind{PreparedStatement: "take", Parameters: [][]byte{[]byte("3")}}, &pgproto3.Execute{}, &pgproto3.Flush{},
	}
	send("BindComplete CommandComplete", take...)
	if e := g.find(t, "UPDATE"); e.Text != "UPDATE item SET stock = stock - 3 WHERE id = 1" || e.Reply != "OK, 1 row" {
		t.Errorf("%q was answered %q", e.Text, e.Reply)
	}
	send("ReadyForQuery", &pgproto3.Sync{})
	if e := g.find(t, "COMMIT"); e.Local {
		t.Error("what was executed before a Flush is committed, but nobody can notice that")
	}
	send("BindComplete CommandComplete", take...)
	send("ParseComplete BindComplete DataRow CommandComplete ReadyForQuery",
		&pgproto3.Parse{Query: "SELECT 1"}, &pgproto3.Bind{}, &pgproto3.Execute{}, &pgproto3.Sync{})
	if e := g.find(t, "SELECT 1"); e.Local {
		t.Error("it commits what was executed before a Flush, but nobody can notice that")
	}
	send("", &pgproto3.Flush{}) // has no answer
	send("ErrorResponse", &pgproto3.Parse{Query: "oops"}, &pgproto3.Flush{})
	send("", take...) // is ignored
	send("ReadyForQuery", &pgproto3.Sync{})
	send("BindComplete CommandComplete ReadyForQuery", append(take[:2], &pgproto3.Sync{})...)
	wantStock(t, direct, 1)
}

func TestWhatOpensAConnectionToPostgres(t *testing.T) {
	t.Parallel()
	_, _, p, _ := openPostgres(t, pgx.QueryExecModeExec)
	message := func(code uint32, rest string) []byte {
		return append(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, uint32(8+len(rest))), code), rest...)
	}
	for _, c := range []struct {
		name, want string
		sent       []byte
	}{
		{"encryption", "N", message(gssEncRequest, "")},
		{"version 2", "only version 3", message(2<<16, "user\x00a\x00\x00")},
		{"replication", "replication cannot be explored", message(3<<16, "user\x00a\x00replication\x00true\x00\x00")},
		{"HTTP", "no message of PostgreSQL's protocol", []byte("GET / HTTP/1.1\r\n\r\n")},
		{"nothing", "no message of PostgreSQL's protocol", []byte{0, 0, 0, 4}},
	} {
		conn := dial(t, p)
		if _, err := conn.Write(c.sent); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 1000)
		n, err := conn.Read(got)
		if err != nil || !strings.Contains(string(got[:n]), c.want) {
			t.Errorf("%s: %q, %v, want %q", c.name, got[:n], err, c.want)
		}
	}
}
