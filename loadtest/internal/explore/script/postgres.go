package script

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/jmoiron/sqlx"
	"go.starlark.net/starlark"

	"stock/loadtest/internal/explore/trace"
	"stock/loadtest/internal/explore/wire"
)

// postgresServer is a PostgreSQL. There is no proxy in front of it: it asks the gate itself before each statement.
type postgresServer struct {
	db   *sqlx.DB
	gate wire.Gate
	ids  map[*sqlx.Conn]*wire.Conn // those that are not cut

	savepoints map[*sqlx.Conn]bool // whether the session has used any
}

// OnPostgres returns stores whose connections are those of a database, which stays open. They are reused: the server
// would take longer to open one than to execute a schedule.
func OnPostgres(db *sqlx.DB, gate wire.Gate, isolation, redisAddr string) *Stores {
	return newStores(&postgresServer{
		db: db, gate: gate, ids: map[*sqlx.Conn]*wire.Conn{}, savepoints: map[*sqlx.Conn]bool{},
	}, isolation, redisAddr)
}

func (p *postgresServer) connect(ctx context.Context, isolation string) (*sqlx.Conn, error) {
	conn, err := p.db.Connx(ctx)
	if err != nil {
		return nil, err
	}
	p.ids[conn] = &wire.Conn{Store: trace.Postgres, PID: driverOf(conn).PID()}
	if isolation != "" {
		set := "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL " + isolation
		if _, err := p.query(ctx, conn, "SET", set, nil); err != nil {
			p.cut(conn)
			return nil, err
		}
	}
	return conn, nil
}

// driverOf returns the driver's connection; an empty one if there is none any more.
func driverOf(conn *sqlx.Conn) (c *pgconn.PgConn) {
	c = &pgconn.PgConn{}
	_ = conn.Raw(func(of any) error {
		c = of.(*stdlib.Conn).Conn().PgConn()
		return nil
	})
	return c
}

func (p *postgresServer) query(
	ctx context.Context, conn *sqlx.Conn, first, statement string, args []any,
) (starlark.Value, error) {
	text, err := bind(statement, args)
	if err != nil {
		return nil, err
	}
	e := &wire.Exchange{
		Conn: p.ids[conn], Store: trace.Postgres, Text: strings.TrimSpace(text), Local: unnoticed(first, text),
		// No text tells what its statement touches, because of triggers, foreign keys and SERIALIZABLE.
		Reads: []string{"*"}, Writes: []string{"*"},
	}
	e.Parts, e.Several = wire.PartsOfPostgres(text)
	action := p.gate.Arrive(e, ctx.Done())
	if action == wire.LoseBoth {
		p.cut(conn)
		p.gate.Answered(e, io.EOF)
		return nil, io.EOF
	}
	p.savepoints[conn] = p.savepoints[conn] || first == "SAVEPOINT"
	failed := driverOf(conn).TxStatus() == inFailed
	value, err := execute(ctx, conn, first, text, nil)
	f, ok := p.failed(err)
	switch {
	case f.lost:
		p.cut(conn)
		p.gate.Answered(e, err)
		return nil, io.EOF
	case ok:
		e.Reply = f.text
	case err != nil:
		e.Reply = err.Error()
	case failed && driverOf(conn).TxStatus() != inFailed:
		e.Reply = "ROLLBACK" // also to COMMIT
	default:
		e.Reply = reply(value, returnsRows(first, text))
	}
	p.gate.Answered(e, nil)
	if action == wire.LoseReply {
		p.cut(conn)
		return nil, io.EOF
	}
	return value, err
}

// The states of a connection.
const (
	inTransaction = 'T'
	inFailed      = 'E' // a transaction that can only be rolled back
)

// unnoticed reports whether no other session can notice a statement.
func unnoticed(first, text string) bool {
	several := strings.Contains(strings.TrimRight(text, "; \t\n"), ";")
	return !several && slices.Contains([]string{"BEGIN", "START", "SAVEPOINT", "SET"}, first) &&
		!strings.Contains(strings.ToUpper(text), "CONSTRAINTS") // which are checked then
}

// reply returns what a statement has returned, in a few words.
func reply(value starlark.Value, rows bool) string {
	list, several := value.(*starlark.List)
	switch {
	case !rows && value.String() == "1":
		return "OK, 1 row"
	case !rows:
		return fmt.Sprintf("OK, %v rows", value)
	case value == starlark.None:
		return "0 rows"
	case several:
		return fmt.Sprintf("%d rows: %s", list.Len(), literals(list.Index(0)))
	}
	return "1 row: " + literals(value)
}

// literals returns the values of a row as literals of SQL.
func literals(row starlark.Value) string {
	columns, ok := row.(starlark.Tuple)
	if !ok {
		columns = starlark.Tuple{row}
	}
	values, _ := fromStarlark("sql", columns) // made by toStarlark
	var texts []string
	for _, v := range values {
		texts = append(texts, literal(v))
	}
	return strings.Join(texts, ", ")
}

// bind puts arguments into a statement in the place of $1, $2 and so on.
func bind(statement string, args []any) (string, error) {
	used := make([]bool, len(args))
	var unknown error
	text := wire.ReplaceParameters(statement, func(n int) (string, bool) {
		if n < 1 || n > len(args) {
			unknown = fmt.Errorf("sql: there is no argument for $%d", n)
			return "", false
		}
		used[n-1] = true
		return literal(args[n-1]), true
	})
	if at := slices.Index(used, false); at >= 0 && unknown == nil {
		unknown = fmt.Errorf("sql: argument %d is not used: the statement has no $%[1]d", at+1)
	}
	return text, unknown
}

// literal returns a value as it is written in SQL.
func literal(arg any) string {
	switch v := arg.(type) {
	case nil:
		return "NULL"
	case string:
		return "'" + strings.ReplaceAll(v, "'", "''") + "'"
	case bool:
		return strings.ToUpper(strconv.FormatBool(v))
	}
	return fmt.Sprint(arg)
}

func (p *postgresServer) failed(err error) (f failure, ok bool) {
	refused, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case isLost(err) || ok && refused.Severity == "FATAL":
		return failure{text: "the connection to PostgreSQL was lost", lost: true}, true
	case !ok:
		return failure{}, false
	}
	// Syntax errors and what does not exist; what is not supported; a subquery with several rows.
	mistake := slices.Contains([]string{"42", "0A", "21"}, refused.Code[:2])
	return failure{
		text: fmt.Sprintf("error %s: %s", refused.Code, refused.Message), code: starlark.String(refused.Code),
		mistake: mistake, refusal: !mistake,
	}, true
}

// rollBack ends a transaction, which is a step, because it releases locks. One that has failed holds no locks, except
// those from before a savepoint.
func (p *postgresServer) rollBack(ctx context.Context, conn *sqlx.Conn) {
	status := driverOf(conn).TxStatus()
	switch {
	case ctx.Err() != nil:
		p.cut(conn)
	case status == inTransaction, status == inFailed && p.savepoints[conn]:
		_, _ = p.query(ctx, conn, "ROLLBACK", "ROLLBACK", nil) // if it fails, the connection is lost
	case status == inFailed:
		_, _ = conn.ExecContext(ctx, "ROLLBACK")
	}
}

// cut ends a connection, and waits until the server has rolled back what it has not committed. By itself, a server
// notices a lost connection late if it waits for a lock.
func (p *postgresServer) cut(conn *sqlx.Conn) {
	id := p.ids[conn]
	if id == nil {
		return
	}
	delete(p.ids, conn)
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, _ = p.db.ExecContext(ctx, fmt.Sprintf("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "+
		"WHERE pid = %d AND datname = current_database()", id.PID))
}

// close makes connections ready for others.
func (p *postgresServer) close(conns []*sqlx.Conn) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, conn := range conns {
		if _, err := conn.ExecContext(ctx, "DISCARD ALL"); err != nil {
			p.cut(conn)
		}
		_ = conn.Close() // it is cut already if it fails
	}
	return nil
}
