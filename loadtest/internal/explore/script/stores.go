package script

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jmoiron/sqlx"
	"github.com/redis/go-redis/v9"
	"go.starlark.net/starlark"
)

// Stores are the connections of one session. A connection is opened when it is first needed, and after it was lost.
type Stores struct {
	sql       server
	keys      *redis.Client
	isolation string
	conns     map[string]*sqlx.Conn // by name
	// Once are statements that are not executed again: those that create tables. It is nil for sessions.
	Once map[string]bool
}

// server executes SQL.
type server interface {
	// connect opens a connection at an isolation level; if that is empty, at the server's default.
	connect(ctx context.Context, isolation string) (*sqlx.Conn, error)
	query(ctx context.Context, conn *sqlx.Conn, first, statement string, args []any) (starlark.Value, error)
	// failed returns what an error of query means, if it comes from the server or the connection.
	failed(err error) (f failure, ok bool)
	// rollBack ends what a connection has not committed.
	rollBack(ctx context.Context, conn *sqlx.Conn)
	// cut ends a connection that was lost.
	cut(conn *sqlx.Conn)
	// close ends connections, and with them what was not committed.
	close(conns []*sqlx.Conn) error
}

// patience is longer than any schedule.
const patience = 30 * time.Second

func newStores(sql server, isolation, redisAddr string) *Stores {
	keys := redis.NewClient(&redis.Options{
		Addr: redisAddr, PoolSize: 1, MaxRetries: -1, DisableIdentity: true, ReadTimeout: patience,
		ContextTimeoutEnabled: true,
	})
	return &Stores{sql: sql, keys: keys, isolation: isolation, conns: map[string]*sqlx.Conn{}}
}

// Close ends all connections, and with them what was not committed.
func (s *Stores) Close() error {
	return errors.Join(s.keys.Close(), s.sql.close(slices.Collect(maps.Values(s.conns))))
}

// RollBack ends what a session has left uncommitted.
func (s *Stores) RollBack(ctx context.Context) {
	for _, name := range slices.Sorted(maps.Keys(s.conns)) { // in the same order in every schedule
		s.sql.rollBack(ctx, s.conns[name])
	}
}

func (s *Stores) conn(ctx context.Context, name string) (conn *sqlx.Conn, err error) {
	if conn = s.conns[name]; conn == nil {
		if conn, err = s.sql.connect(ctx, s.isolation); err == nil {
			s.conns[name] = conn
		}
	}
	return conn, err
}

// lost forgets a connection that was lost.
func (s *Stores) lost(name string) {
	if conn := s.conns[name]; conn != nil {
		s.sql.cut(conn)
		delete(s.conns, name)
	}
}

func (r *run) sql(ctx context.Context, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var on string
	if err := starlark.UnpackArgs("sql", nil, kwargs, "on?", &on); err != nil {
		return nil, err
	}
	statement, values, err := unpack("sql", args)
	if err != nil {
		return nil, err
	}
	stores := r.env.Stores
	first := strings.ToUpper(firstWord(statement))
	if stores.Once != nil && first == "CREATE" {
		if stores.Once[statement] {
			return starlark.None, nil
		}
		stores.Once[statement] = true
	}
	conn, err := stores.conn(ctx, on)
	var value starlark.Value
	if err == nil {
		value, err = stores.sql.query(ctx, conn, first, statement, values)
	}
	if err == nil {
		return value, nil
	}
	f, ok := stores.sql.failed(err)
	if !ok {
		return nil, err
	}
	if f.lost {
		stores.lost(on)
	}
	return nil, f
}

// isLost reports whether an error of the driver is that of a connection, and not that of an argument.
func isLost(err error) bool {
	_, network := errors.AsType[net.Error](err)
	return network || slices.ContainsFunc([]error{
		driver.ErrBadConn, mysql.ErrInvalidConn, sql.ErrConnDone, io.EOF, io.ErrUnexpectedEOF, context.Canceled,
	}, func(lost error) bool { return errors.Is(err, lost) })
}

// beforeStatement matches what can precede the first word of a statement.
var beforeStatement = regexp.MustCompile(`^(?:[\s(]|/\*(?s:.*?)\*/|#.*\n|--(?:[ \t].*)?\n)+`)

func firstWord(text string) string {
	fields := strings.Fields(beforeStatement.ReplaceAllString(text, ""))
	if len(fields) == 0 {
		return ""
	}
	return strings.TrimSuffix(fields[0], ";")
}

// returnsRows reports whether a statement is one that returns rows.
func returnsRows(first, statement string) bool {
	switch first {
	case "SELECT", "SHOW", "WITH", "VALUES", "TABLE", "EXPLAIN", "DESCRIBE", "CALL":
		return true
	}
	return slices.Contains(strings.Fields(strings.ToUpper(statement)), "RETURNING")
}

// execute has a connection execute a statement.
func execute(ctx context.Context, conn *sqlx.Conn, first, statement string, args []any) (starlark.Value, error) {
	if !returnsRows(first, statement) {
		result, err := conn.ExecContext(ctx, statement, args...)
		if err != nil {
			return nil, err
		}
		n, err := result.RowsAffected()
		return starlark.MakeInt64(n), err
	}
	rows, err := conn.QueryxContext(ctx, statement, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []starlark.Value
	left := mostSent
	for rows.Next() {
		row, err := scan(rows)
		if err == nil {
			_, err = encodeWithin(&left, row)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, row)
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	switch len(all) {
	case 0:
		return starlark.None, nil
	case 1:
		return all[0], nil
	}
	return starlark.NewList(all), nil
}

// scan returns the value of a row with one column, and a tuple of any other.
func scan(rows *sqlx.Rows) (starlark.Value, error) {
	types, err := rows.ColumnTypes()
	if err != nil {
		return nil, err
	}
	values, err := rows.SliceScan()
	row := make(starlark.Tuple, len(values))
	for i, v := range values {
		if name := types[i].DatabaseTypeName(); v != nil && (name == "DECIMAL" || name == "NUMERIC") { // such as SUM
			if n, err := strconv.ParseInt(fmt.Sprintf("%s", v), 10, 64); err == nil {
				v = n
			}
		}
		row[i] = toStarlark(v)
	}
	if len(row) == 1 {
		return row[0], err
	}
	return row, err
}

func (r *run) redis(ctx context.Context, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	if len(kwargs) > 0 {
		return nil, errors.New("redis: it takes a command and its arguments, nothing by name")
	}
	command, values, err := unpack("redis", args)
	if err != nil {
		return nil, err
	}
	return r.command(ctx, append([]any{command}, values...))
}

func (r *run) lua(ctx context.Context, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var text string
	keys, argv := starlark.NewList(nil), starlark.NewList(nil)
	if err := starlark.UnpackArgs("lua", args, kwargs, "script", &text, "keys?", &keys, "args?", &argv); err != nil {
		return nil, err
	}
	values, err := fromStarlark("lua", slices.AppendSeq(slices.Collect(keys.Elements()), argv.Elements()))
	if err != nil {
		return nil, err
	}
	return r.command(ctx, append([]any{"EVAL", text, keys.Len()}, values...))
}

func (r *run) command(ctx context.Context, args []any) (starlark.Value, error) {
	stores := r.env.Stores
	closing := context.AfterFunc(ctx, func() { _ = stores.keys.Close() }) // it does not look at ctx while it waits
	defer closing()
	value, err := stores.keys.Do(ctx, args...).Result()
	var refused redis.Error
	switch {
	case err == nil:
		return toStarlark(value), nil
	case errors.Is(err, redis.Nil):
		return starlark.None, nil
	case errors.As(err, &refused):
		return nil, failure{text: err.Error()}
	}
	return nil, failure{text: "the connection to Redis was lost", lost: true}
}

// unpack returns the text and the values of a call.
func unpack(function string, args starlark.Tuple) (text string, values []any, err error) {
	if len(args) == 0 {
		return "", nil, fmt.Errorf("%s: a text is missing", function)
	}
	text, ok := starlark.AsString(args[0])
	if !ok || strings.TrimSpace(text) == "" {
		return "", nil, fmt.Errorf("%s: must begin with a text, not with %v", function, args[0])
	}
	values, err = fromStarlark(function, args[1:])
	return text, values, err
}

// fromStarlark returns values as the drivers want them.
func fromStarlark(function string, list []starlark.Value) (values []any, err error) {
	for _, v := range list {
		var value any
		ok := true
		switch v := v.(type) {
		case starlark.NoneType:
		case starlark.Bool:
			value = bool(v)
		case starlark.Int:
			value, ok = v.Int64()
		case starlark.Float:
			value = float64(v)
		case starlark.String:
			value = string(v)
		default:
			ok = false
		}
		if !ok {
			return nil, fmt.Errorf("%s: %v (%s) cannot be sent: a text or a number can", function, v, v.Type())
		}
		values = append(values, value)
	}
	return values, nil
}

// toStarlark returns a value of a driver, or an argument.
func toStarlark(v any) starlark.Value {
	switch v := v.(type) {
	case nil:
		return starlark.None
	case int64:
		return starlark.MakeInt64(v)
	case uint64:
		return starlark.MakeUint64(v)
	case int:
		return starlark.MakeInt(v)
	case float32:
		return starlark.Float(v)
	case float64:
		return starlark.Float(v)
	case bool:
		return starlark.Bool(v)
	case []byte:
		return starlark.String(v)
	case []any:
		all := make([]starlark.Value, len(v))
		for i := range v {
			all[i] = toStarlark(v[i])
		}
		return starlark.NewList(all)
	case map[any]any: // of RESP3, such as HGETALL
		all := starlark.NewDict(len(v))
		for name, value := range v {
			_ = all.SetKey(toStarlark(name), toStarlark(value)) // texts and numbers can be keys
		}
		return all
	}
	return starlark.String(fmt.Sprint(v))
}
