package fault

import (
	"context"
	"database/sql"

	"github.com/go-sql-driver/mysql"

	"stock/internal/monotonic"
	"stock/loadtest/internal/history"
)

// perform makes a deduction of a practice, and records it. deduct returns the units that remain. Its error means that
// nothing was deducted.
func (s *Stage) perform(client string, count int64, deduct func() (remaining int64, err error)) history.Op {
	a := s.ask(client, count)
	a.answer(deduct())
	return a.op
}

// asked is a deduction of a practice that is under way.
type asked struct {
	stage    *Stage
	client   string
	op       history.Op
	answered func()
}

// ask begins a deduction of a practice, for a story in which several are under way at the same time.
func (s *Stage) ask(client string, count int64) *asked {
	op := history.Op{Kind: history.Deduct, GoodsID: s.Item, Count: count}
	op.Name, op.Attempts, op.SentNS = requestName(s.Item, client), 1, monotonic.Now()
	return &asked{s, client, op, s.asks(client, "", op.Name)}
}

// answer ends the deduction and records it, with the results of perform's deduct.
func (a *asked) answer(remaining int64, err error) {
	a.answered()
	a.op.ReceivedNS, a.op.Remaining = monotonic.Now(), remaining
	if err == nil {
		a.op.Outcome, a.op.Status, a.op.OmitsRemaining = history.Sold, 200, a.stage.Strategy.OmitsRemaining()
	} else {
		a.op.Outcome, a.op.Status, a.op.Error = history.Busy, 503, err.Error()
	}
	a.stage.record(a.client, a.op)
}

// execute returns what carries out a statement.
func execute(db *sql.DB, query string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := db.ExecContext(ctx, query)
		return err
	}
}

// mysql opens connections of the story's own to the database.
func (s *Stage) mysql() *sql.DB {
	config, err := mysql.ParseDSN(s.Addresses.MySQLDSN)
	s.check(err)
	config.InterpolateParams = true
	config.Logger = &mysql.NopLogger{} // stories break connections
	connector, err := mysql.NewConnector(config)
	s.check(err)
	db := sql.OpenDB(connector)
	s.atEnd = append(s.atEnd, func() { db.Close() })
	s.check(db.PingContext(s.ctx))
	return db
}

// whileLocked plays a part of the story while another transaction has locked the row of an item.
func (s *Stage) whileLocked(item int64, part func()) {
	tx, err := s.mysql().BeginTx(s.ctx, nil)
	s.check(err)
	defer tx.Rollback()
	var units int64
	s.check(tx.QueryRowContext(s.ctx, readSQL+" FOR UPDATE", item).Scan(&units))
	s.Stepf("another transaction has locked the row of item %d", item)
	part()
}
