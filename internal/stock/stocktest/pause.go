package stocktest

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"regexp"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jmoiron/sqlx"
	"github.com/redis/go-redis/v9"
)

// Point is a moment at which a test can stop a request: before or after one of its exchanges with a store. The
// strategies know nothing of it.
type Point string

// The points. A read or a write is one of the stock.
const (
	AfterLock    Point = "after-lock" // a named lock of MySQL was asked for
	BeforeRead   Point = "before-read"
	AfterRead    Point = "after-read"
	BeforeWrite  Point = "before-write"
	AfterWrite   Point = "after-write"
	BeforeCommit Point = "before-commit" // of a transaction
)

// PauseFunc is called at each point that a request comes to. The request goes on when it returns. It may send requests
// with ctx itself, which do not stop.
type PauseFunc func(ctx context.Context, at Point)

type pauseKey struct{}

// WithPause makes the clients of Addresses.Connect call pause for the requests with this context.
func WithPause(ctx context.Context, pause PauseFunc) context.Context {
	return context.WithValue(ctx, pauseKey{}, pause)
}

// step is the points before and after an exchange; empty for none.
type step struct{ before, after Point }

var (
	reading = step{BeforeRead, AfterRead}
	writing = step{BeforeWrite, AfterWrite}
)

// take passes the points of a step around an exchange. One that fails has no point after it.
func (s step) take(ctx context.Context, exchange func() error) error {
	pause, _ := ctx.Value(pauseKey{}).(PauseFunc)
	stop := func(at Point) {
		if pause != nil && at != "" {
			pause(WithPause(ctx, nil), at)
		}
	}
	stop(s.before)
	err := exchange()
	if err == nil {
		stop(s.after)
	}
	return err
}

// openMySQL opens a pool whose requests stop at points.
func openMySQL(config *mysql.Config) (*sqlx.DB, error) {
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	return sqlx.NewDb(sql.OpenDB(pausingConnector{connector}), "mysql"), nil
}

type pausingConnector struct{ driver.Connector }

func (c pausingConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return pausingConn{conn.(mysqlConn)}, nil
}

// mysqlConn is what a connection of the driver implements.
type mysqlConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.NamedValueChecker
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

type pausingConn struct{ mysqlConn }

func (c pausingConn) ExecContext(
	ctx context.Context, query string, args []driver.NamedValue,
) (result driver.Result, err error) {
	err = stepOfStatement(query).take(ctx, func() error {
		result, err = c.mysqlConn.ExecContext(ctx, query, args)
		return err
	})
	return result, err
}

func (c pausingConn) QueryContext(
	ctx context.Context, query string, args []driver.NamedValue,
) (rows driver.Rows, err error) {
	err = stepOfStatement(query).take(ctx, func() error {
		rows, err = c.mysqlConn.QueryContext(ctx, query, args)
		return err
	})
	return rows, err
}

func (c pausingConn) BeginTx(ctx context.Context, options driver.TxOptions) (driver.Tx, error) {
	tx, err := c.mysqlConn.BeginTx(ctx, options)
	return pausingTx{tx, ctx}, err
}

type pausingTx struct {
	driver.Tx
	ctx context.Context
}

func (tx pausingTx) Commit() error { return step{before: BeforeCommit}.take(tx.ctx, tx.Tx.Commit) }

var (
	readsStock  = regexp.MustCompile(`^SELECT[^;]*\s(FROM|JOIN) (good_stock|good_slot|unit_stock|good_unit)\b`)
	writesStock = regexp.MustCompile(
		`(UPDATE|INSERT INTO|DELETE FROM|DELETE \w+ FROM) (good_stock|good_slot|unit_stock|good_unit)\b`)
)

func stepOfStatement(query string) step {
	switch {
	case strings.HasPrefix(query, "SELECT GET_LOCK"):
		return step{after: AfterLock}
	case readsStock.MatchString(query):
		return reading
	case writesStock.MatchString(query):
		return writing
	}
	return step{}
}

// pausingRedis is a hook of a client of Redis.
type pausingRedis struct{}

func (pausingRedis) DialHook(next redis.DialHook) redis.DialHook { return next }

func (pausingRedis) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return stepOfCommand(cmd).take(ctx, func() error { return next(ctx, cmd) })
	}
}

func (pausingRedis) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		var s step
		for _, cmd := range cmds {
			if s == (step{}) {
				s = stepOfCommand(cmd)
			}
		}
		return s.take(ctx, func() error { return next(ctx, cmds) })
	}
}

// stepOfCommand takes every script on the stock for a write. If Redis does not know the script, EVAL follows on EVALSHA:
// both are one step.
func stepOfCommand(cmd redis.Cmder) step {
	args, key := cmd.Args(), 1
	if strings.HasPrefix(cmd.Name(), "eval") {
		key = 3
	}
	if len(args) <= key || !stockKey.MatchString(fmt.Sprint(args[key])) {
		return step{}
	}
	switch cmd.Name() {
	case "get":
		return reading
	case "set", "decrby", "incrby", "evalsha":
		return writing
	case "eval":
		return step{after: AfterWrite}
	}
	return step{}
}

var stockKey = regexp.MustCompile(`\bstock:\{-?\d+\}$`)
