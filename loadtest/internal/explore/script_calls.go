package explore

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"
	"go.starlark.net/starlark"

	"stock/loadtest/internal/explore/wire"
)

// calls are what the functions of a script call, on connections of their own.
type calls struct {
	ctx   context.Context
	conn  *sql.Conn
	keys  *redis.Client
	items []int64
	open  bool // a transaction

	lane    *lane // nil outside of schedules
	replica int
}

const callsKey = "calls"

// builtins are the functions that a script can call.
var builtins = func() starlark.StringDict {
	functions := starlark.StringDict{}
	for name, f := range map[string]func(*calls, starlark.Tuple) (starlark.Value, error){
		"sql": (*calls).sql, "rows": (*calls).rows, "redis": (*calls).redis, "lua": (*calls).lua, "http": (*calls).http,
		"refuse": refuse,
	} {
		functions[name] = starlark.NewBuiltin(name, func(
			thread *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple,
		) (starlark.Value, error) {
			c, ok := thread.Local(callsKey).(*calls)
			if !ok {
				return nil, fmt.Errorf("%s can be called by sessions, setup and check only", b.Name())
			}
			if len(kwargs) > 0 {
				return nil, fmt.Errorf("%s takes no named arguments", b.Name())
			}
			return f(c, args)
		})
	}
	functions["catch"] = starlark.NewBuiltin("catch", catch)
	return functions
}()

// refusedError is how refuse ends a session.
type refusedError struct{ why string }

func (e refusedError) Error() string { return "refused: " + e.why }

func refuse(_ *calls, args starlark.Tuple) (starlark.Value, error) {
	var why string
	if err := starlark.UnpackPositionalArgs("refuse", args, nil, 1, &why); err != nil {
		return nil, err
	}
	return nil, refusedError{why}
}

// errLost is returned when a connection has ended: nobody knows what became of the call.
var errLost = errors.New("the connection is lost")

// catch calls a function, and returns what it returned and None, or None and what the store answered.
func catch(
	thread *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple,
) (starlark.Value, error) {
	if len(args) == 0 {
		return nil, errors.New("catch needs a function, and its arguments")
	}
	value, err := starlark.Call(thread, args[0], args[1:], kwargs)
	var answer storeError
	if errors.As(err, &answer) {
		return starlark.Tuple{starlark.None, starlark.String(answer.Error())}, nil
	}
	return starlark.Tuple{value, starlark.None}, err
}

// storeError is an error that a store has answered.
type storeError struct{ error }

func (e storeError) Unwrap() error { return e.error }

// answered tells what a store has answered from a connection that has ended.
func (c *calls) answered(err error) error {
	var fromMySQL *mysql.MySQLError
	var fromRedis redis.Error
	var broken net.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &fromMySQL):
		if fromMySQL.Number == deadlockFound {
			c.open = false
		}
		return storeError{err}
	case errors.Is(err, driver.ErrBadConn), errors.Is(err, mysql.ErrInvalidConn), errors.Is(err, io.EOF),
		errors.Is(err, io.ErrUnexpectedEOF), errors.As(err, &broken), c.ctx.Err() != nil, errors.Is(err, sql.ErrConnDone):
		return errLost
	case errors.As(err, &fromRedis):
		return storeError{err}
	}
	return err
}

// Errors of MySQL after which a request may be sent again.
const (
	recordChanged   = 1020
	lockWaitTimeout = 1205
	deadlockFound   = 1213
	lockNowait      = 3572
)

func isConflict(err error) bool {
	var answer *mysql.MySQLError
	if !errors.As(err, &answer) {
		return false
	}
	switch answer.Number {
	case recordChanged, lockWaitTimeout, deadlockFound, lockNowait:
		return true
	}
	return false
}

func (c *calls) close() { _ = c.conn.Close() }

// rollBack ends the transaction that a session has left open.
func (c *calls) rollBack() {
	if c.open {
		_, _ = c.conn.ExecContext(c.ctx, "ROLLBACK") // the end of the connection does the same
	}
}

// sql executes a statement. It returns the number of changed rows, or the first row of the result: its value if it has
// one column, a tuple if it has several, None if there is none.
func (c *calls) sql(args starlark.Tuple) (starlark.Value, error) {
	query, values, err := statement("sql", args)
	if err != nil {
		return nil, err
	}
	verb, _, _ := strings.Cut(strings.ToUpper(strings.TrimSpace(query)), " ")
	switch verb {
	case "SELECT", "SHOW", "WITH":
		all, err := c.query(query, values)
		if err != nil || len(all) == 0 {
			return starlark.None, err
		}
		return all[0], nil
	}
	result, err := c.conn.ExecContext(c.ctx, query, values...)
	if err != nil {
		return nil, c.answered(err)
	}
	switch strings.TrimSuffix(verb, ";") {
	case "BEGIN", "START":
		c.open = true
	case "COMMIT", "ROLLBACK":
		c.open = false
	}
	changed, err := result.RowsAffected()
	return starlark.MakeInt64(changed), err
}

// rows returns all rows of a result.
func (c *calls) rows(args starlark.Tuple) (starlark.Value, error) {
	query, values, err := statement("rows", args)
	if err != nil {
		return nil, err
	}
	all, err := c.query(query, values)
	return starlark.NewList(all), err
}

func statement(name string, args starlark.Tuple) (query string, values []any, err error) {
	if len(args) == 0 {
		return "", nil, fmt.Errorf("%s needs a statement", name)
	}
	query, ok := starlark.AsString(args[0])
	if !ok {
		return "", nil, fmt.Errorf("%s: the statement is %s, and must be a string", name, args[0].Type())
	}
	values, err = toGo(args[1:])
	return query, values, err
}

func (c *calls) query(query string, values []any) (all []starlark.Value, err error) {
	result, err := c.conn.QueryContext(c.ctx, query, values...)
	if err != nil {
		return nil, c.answered(err)
	}
	defer result.Close()
	columns, err := result.ColumnTypes()
	if err != nil {
		return nil, err
	}
	fields, to := make([]sql.NullString, len(columns)), make([]any, len(columns))
	for i := range fields {
		to[i] = &fields[i]
	}
	for result.Next() {
		if err := result.Scan(to...); err != nil {
			return nil, err
		}
		row := make(starlark.Tuple, len(columns))
		for i, field := range fields {
			row[i] = ofColumn(columns[i].DatabaseTypeName(), field)
		}
		if len(row) == 1 {
			all = append(all, row[0])
		} else {
			all = append(all, row)
		}
	}
	return all, c.answered(result.Err())
}

func ofColumn(columnType string, field sql.NullString) starlark.Value {
	if !field.Valid {
		return starlark.None
	}
	if strings.Contains(columnType, "INT") || columnType == "DECIMAL" {
		if n, err := strconv.ParseInt(field.String, 10, 64); err == nil {
			return starlark.MakeInt64(n)
		}
	}
	return starlark.String(field.String)
}

// redis sends a command.
func (c *calls) redis(args starlark.Tuple) (starlark.Value, error) {
	values, err := toGo(args)
	if err != nil {
		return nil, err
	}
	reply, err := c.keys.Do(c.ctx, values...).Result()
	return c.ofRedis(reply, err)
}

// lua executes a script in Redis: its text, a list of keys, a list of arguments.
func (c *calls) lua(args starlark.Tuple) (starlark.Value, error) {
	var text string
	keys, values := new(starlark.List), new(starlark.List)
	if err := starlark.UnpackPositionalArgs("lua", args, nil, 1, &text, &keys, &values); err != nil {
		return nil, err
	}
	var names []string
	for key := range starlark.Elements(keys) {
		name, _ := starlark.AsString(key)
		names = append(names, name)
	}
	arguments, err := toGo(starlark.Tuple(collected(values)))
	if err != nil {
		return nil, err
	}
	reply, err := c.keys.Eval(c.ctx, text, names, arguments...).Result()
	return c.ofRedis(reply, err)
}

func collected(list *starlark.List) (values []starlark.Value) {
	for v := range starlark.Elements(list) {
		values = append(values, v)
	}
	return values
}

func (c *calls) ofRedis(reply any, err error) (starlark.Value, error) {
	if errors.Is(err, redis.Nil) {
		return starlark.None, nil
	}
	if err != nil {
		return nil, c.answered(err)
	}
	switch reply := reply.(type) {
	case int64:
		return starlark.MakeInt64(reply), nil
	case string:
		return starlark.String(reply), nil
	case []any:
		var list []starlark.Value
		for _, element := range reply {
			value, _ := c.ofRedis(element, nil)
			list = append(list, value)
		}
		return starlark.NewList(list), nil
	}
	return starlark.None, nil
}

// http sends a request, and returns the status and the body of the answer.
func (c *calls) http(args starlark.Tuple) (starlark.Value, error) {
	var method, url, body string
	if err := starlark.UnpackPositionalArgs("http", args, nil, 2, &method, &url, &body); err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(c.ctx, method, url, bytes.NewBufferString(body))
	if err != nil {
		return nil, err
	}
	step := &wire.Exchange{Store: "http", Text: strings.TrimSpace(method + " " + url + " " + body), Writes: []string{everything}}
	step.Shape = step.Text
	var s *schedule
	if c.lane != nil {
		s = c.lane.running()
	}
	if s != nil && s.arrive(c.replica, step, c.ctx.Done()) == wire.LoseBoth {
		s.replied(c.replica, step, errLost)
		return nil, errLost
	}
	response, err := oneConnection.Do(request)
	if err == nil {
		defer response.Body.Close()
		step.Reply = response.Status
	}
	if s != nil {
		s.replied(c.replica, step, err)
	}
	if err != nil {
		return nil, errLost
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	return starlark.Tuple{starlark.MakeInt(response.StatusCode), starlark.String(text)}, err
}

// toGo converts arguments.
func toGo(args starlark.Tuple) (values []any, err error) {
	for _, arg := range args {
		switch arg := arg.(type) {
		case starlark.NoneType:
			values = append(values, nil)
		case starlark.String:
			values = append(values, string(arg))
		case starlark.Bool:
			values = append(values, bool(arg))
		case starlark.Float:
			values = append(values, float64(arg))
		case starlark.Int:
			n, ok := arg.Int64()
			if !ok {
				return nil, fmt.Errorf("%v is too large", arg)
			}
			values = append(values, n)
		default:
			return nil, fmt.Errorf("%v is %s: arguments are numbers, strings, booleans and None", arg, arg.Type())
		}
	}
	return values, nil
}
