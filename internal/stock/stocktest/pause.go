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

// Point is a moment at which a test can pause a request: right before or after an exchange with MySQL or Redis. The
// pauses are in the clients, so that a paused request does the same as any other.
type Point string

// The points. Reads and writes are those of the stock.
const (
	AfterLock    Point = "after-lock" // MySQL has answered GET_LOCK
	BeforeRead   Point = "before-read"
	AfterRead    Point = "after-read"
	BeforeWrite  Point = "before-write"
	AfterWrite   Point = "after-write"
	BeforeCommit Point = "before-commit" // only of a transaction
)

// PauseFunc is called at each point of a request, which goes on when it returns. It is not called for the requests that
// it sends with ctx.
type PauseFunc func(ctx context.Context, at Point)

type pauseKey struct{}

// WithPause returns a context for a request that pause is to pause. It needs the clients of MySQL and Redis.
func WithPause(ctx context.Context, pause PauseFunc) context.Context {
	return context.WithValue(ctx, pauseKey{}, pause)
}

// step is the points before and after an exchange; empty for none.
type step struct{ before, after Point }

var (
	reading = step{BeforeRead, AfterRead}
	writing = step{BeforeWrite, AfterWrite}
)

// around pauses before an exchange and, unless it fails, after it.
func (s step) around(ctx context.Context, exchange func() error) error {
	pause, _ := ctx.Value(pauseKey{}).(PauseFunc)
	if pause == nil {
		return exchange()
	}
	unpaused := WithPause(ctx, nil)
	if s.before != "" {
		pause(unpaused, s.before)
	}
	err := exchange()
	if err == nil && s.after != "" {
		pause(unpaused, s.after)
	}
	return err
}

// openMySQL opens a pool that pauses requests.
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
	err = stepOfStatement(query).around(ctx, func() error {
		result, err = c.mysqlConn.ExecContext(ctx, query, args)
		return err
	})
	return result, err
}

func (c pausingConn) QueryContext(
	ctx context.Context, query string, args []driver.NamedValue,
) (rows driver.Rows, err error) {
	err = stepOfStatement(query).around(ctx, func() error {
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

func (tx pausingTx) Commit() error { return step{before: BeforeCommit}.around(tx.ctx, tx.Tx.Commit) }

// tables have stock. The lab's fault.Sale matches the same on the wire, apart from unit_stock: only large sales take
// units from it.
const tables = `(?:good_stock|good_slot|unit_stock|good_unit)\b`

var (
	readsStock  = regexp.MustCompile(`^SELECT[^;]*\s(?:FROM|JOIN) ` + tables)
	writesStock = regexp.MustCompile(`(?:UPDATE|INSERT INTO|DELETE \w+ FROM) ` + tables)
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

// pausingRedis is the hook of a client of Redis that pauses requests.
type pausingRedis struct{}

func (pausingRedis) DialHook(next redis.DialHook) redis.DialHook { return next }

func (pausingRedis) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return stepOfCommand(cmd).around(ctx, func() error { return next(ctx, cmd) })
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
		return s.around(ctx, func() error { return next(ctx, cmds) })
	}
}

// stepOfCommand takes every script on a stock for a write. If Redis does not know the script, EVALSHA fails and EVAL
// follows: both are one step.
func stepOfCommand(cmd redis.Cmder) step {
	args, key := cmd.Args(), 1
	if strings.HasPrefix(cmd.Name(), "eval") {
		key = 3
	}
	if len(args) <= key || !stockKey.MatchString(fmt.Sprint(args[key])) {
		return step{}
	}
	switch cmd.Name() {
	case "get", "mget":
		return reading
	case "set", "decrby", "evalsha":
		return writing
	case "eval":
		return step{after: AfterWrite}
	}
	return step{}
}

var stockKey = regexp.MustCompile(`\bstock:\{-?\d+\}$`)
