package mutants

import (
	"bytes"
	"context"
	"database/sql/driver"
	"errors"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"
)

// connector opens connections to MySQL that carry a mutant's statements.
type connector struct {
	driver.Connector
	plan *plan
}

// mysqlConn is what database/sql expects of a connection of go-sql-driver/mysql.
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

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	opened, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	inner, ok := opened.(mysqlConn)
	if !ok {
		return nil, errors.New("the driver of MySQL has changed: its connections lack a method of mysqlConn")
	}
	return mutantConn{inner, c.plan}, nil
}

type mutantConn struct {
	mysqlConn
	plan *plan
}

func (c mutantConn) ExecContext(
	ctx context.Context, statement string, args []driver.NamedValue,
) (driver.Result, error) {
	send := executeFunc(c.mysqlConn.ExecContext)
	if c.plan.execute != nil {
		send = c.plan.execute(send)
	}
	return send(ctx, statement, args)
}

func (c mutantConn) QueryContext(
	ctx context.Context, statement string, args []driver.NamedValue,
) (driver.Rows, error) {
	send := queryFunc(c.mysqlConn.QueryContext)
	if c.plan.query != nil {
		send = c.plan.query(send)
	}
	return send(ctx, statement, args)
}

func (c mutantConn) BeginTx(ctx context.Context, options driver.TxOptions) (driver.Tx, error) {
	if c.plan.begin != nil {
		options = c.plan.begin(options)
	}
	tx, err := c.mysqlConn.BeginTx(ctx, options)
	if err == nil && c.plan.commit != nil {
		tx = mutantTx{tx, c.plan}
	}
	return tx, err
}

type mutantTx struct {
	driver.Tx
	plan *plan
}

func (t mutantTx) Commit() error { return t.plan.commit(t.Tx) }

// rewrite edits every n-th statement that contains the first text: it replaces the first text by the second, the third
// by the fourth, and so on.
func rewrite(n int64, pairs ...string) change {
	return func(p *plan) {
		strikes := p.every(n)
		edit := func(statement string) string {
			if strings.Contains(statement, pairs[0]) && strikes() {
				return strings.NewReplacer(pairs...).Replace(statement)
			}
			return statement
		}
		p.execute = func(next executeFunc) executeFunc {
			return func(ctx context.Context, statement string, args []driver.NamedValue) (driver.Result, error) {
				return next(ctx, edit(statement), args)
			}
		}
		p.query = func(next queryFunc) queryFunc {
			return func(ctx context.Context, statement string, args []driver.NamedValue) (driver.Rows, error) {
				return next(ctx, edit(statement), args)
			}
		}
	}
}

// onStatement takes the place of every n-th statement that writes and contains the text.
func onStatement(
	n int64, text string,
	instead func(ctx context.Context, statement string, args []driver.NamedValue, next executeFunc) (driver.Result, error),
) change {
	return func(p *plan) {
		strikes := p.every(n)
		p.execute = func(next executeFunc) executeFunc {
			return func(ctx context.Context, statement string, args []driver.NamedValue) (driver.Result, error) {
				if strings.Contains(statement, text) && strikes() {
					return instead(ctx, statement, args, next)
				}
				return next(ctx, statement, args)
			}
		}
	}
}

// onArgs changes the arguments of every n-th statement that writes and contains the text.
func onArgs(n int64, text string, edit func([]driver.NamedValue)) change {
	return onStatement(n, text, func(
		ctx context.Context, statement string, args []driver.NamedValue, next executeFunc,
	) (driver.Result, error) {
		args = slices.Clone(args) // database/sql sends them again if the connection turns out to be broken
		edit(args)
		return next(ctx, statement, args)
	})
}

// add returns an edit of onArgs: it adds to one argument.
func add(at int, units int64) func([]driver.NamedValue) {
	return func(args []driver.NamedValue) {
		if value, ok := args[at].Value.(int64); ok {
			args[at].Value = value + units
		}
	}
}

// onRow changes the row that a query reads, if the query contains the text.
func onRow(text string, edit func(ctx context.Context, args []driver.NamedValue, row []driver.Value)) change {
	return func(p *plan) {
		p.query = func(next queryFunc) queryFunc {
			return func(ctx context.Context, statement string, args []driver.NamedValue) (driver.Rows, error) {
				rows, err := next(ctx, statement, args)
				if err != nil || !strings.Contains(statement, text) {
					return rows, err
				}
				return editedRow{rows, func(row []driver.Value) { edit(ctx, args, row) }}, nil
			}
		}
	}
}

type editedRow struct {
	driver.Rows
	edit func([]driver.Value)
}

func (r editedRow) Next(row []driver.Value) error {
	err := r.Rows.Next(row)
	if err == nil {
		for i, value := range row {
			if text, ok := value.([]byte); ok {
				row[i] = bytes.Clone(text) // the driver reads the next row into the same buffer
			}
		}
		r.edit(row)
	}
	return err
}

// unsent leaves a statement out, and answers that it has changed some rows.
func unsent(
	rows int64,
) func(context.Context, string, []driver.NamedValue, executeFunc) (driver.Result, error) {
	return func(context.Context, string, []driver.NamedValue, executeFunc) (driver.Result, error) {
		return faked{rows: rows}, nil
	}
}

// faked is the result of a statement, or of the first one after START TRANSACTION of several in one message.
type faked struct{ rows int64 }

func (f faked) RowsAffected() (int64, error) { return f.rows, nil }
func (f faked) LastInsertId() (int64, error) { return 0, nil }
func (f faked) AllRowsAffected() []int64     { return []int64{0, f.rows} }
func (f faked) AllLastInsertIds() []int64    { return []int64{0, 0} } //nolint:revive // named by mysql.Result

// changedOne reports whether a statement, or the first one after START TRANSACTION of several in one message, has
// changed one row.
func changedOne(result driver.Result) bool {
	if all, ok := result.(mysql.Result); ok && len(all.AllRowsAffected()) > 1 {
		return all.AllRowsAffected()[1] == 1
	}
	rows, _ := result.RowsAffected()
	return rows == 1
}
