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

// statement is one on its way to MySQL.
type statement struct {
	ctx  context.Context
	text string
	args []driver.NamedValue
	send func(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) // not of a query
}

// result is what MySQL answers.
func (s *statement) result() (driver.Result, error) { return s.send(s.ctx, s.text, s.args) }

// also sends another statement.
func (s *statement) also(text string, args []driver.NamedValue) (driver.Result, error) {
	return s.send(s.ctx, text, args)
}

func (s *statement) contains(text string) bool { return strings.Contains(s.text, text) }

// add adds to one argument.
func (s *statement) add(at int, units int64) {
	if value, ok := s.args[at].Value.(int64); ok {
		s.set(at, value+units)
	}
}

// set replaces one argument.
func (s *statement) set(at int, value driver.Value) {
	s.args = slices.Clone(s.args)
	s.args[at].Value = value
}

func (c mutantConn) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	s := &statement{ctx, text, args, c.mysqlConn.ExecContext}
	if c.plan.edit != nil {
		c.plan.edit(s)
	}
	if c.plan.execute != nil {
		return c.plan.execute(s)
	}
	return s.result()
}

func (c mutantConn) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	s := &statement{ctx: ctx, text: text, args: args}
	if c.plan.edit != nil {
		c.plan.edit(s)
	}
	rows, err := c.mysqlConn.QueryContext(ctx, s.text, s.args)
	if err != nil || c.plan.row == nil {
		return rows, err
	}
	return editedRow{rows, func(row []driver.Value) { c.plan.row(s, row) }}, nil
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

// onEvery edits every n-th statement that contains the text.
func onEvery(n int64, text string, edit func(*statement)) change {
	return func(p *plan) {
		strikes := p.every(n)
		p.edit = func(s *statement) {
			if s.contains(text) && strikes() {
				edit(s)
			}
		}
	}
}

// rewrite edits every n-th statement that contains the first text: it replaces the first text by the second, the third
// by the fourth, and so on.
func rewrite(n int64, pairs ...string) change {
	return onEvery(n, pairs[0], func(s *statement) { s.text = strings.NewReplacer(pairs...).Replace(s.text) })
}

// adding is an edit of onEvery: it adds to one argument.
func adding(at int, units int64) func(*statement) {
	return func(s *statement) { s.add(at, units) }
}

// instead takes the place of every n-th statement that writes and contains the text.
func instead(n int64, text string, execute func(*statement) (driver.Result, error)) change {
	return func(p *plan) {
		strikes := p.every(n)
		p.execute = func(s *statement) (driver.Result, error) {
			if s.contains(text) && strikes() {
				return execute(s)
			}
			return s.result()
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
func unsent(rows int64) func(*statement) (driver.Result, error) {
	return func(*statement) (driver.Result, error) { return faked{rows: rows}, nil }
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
