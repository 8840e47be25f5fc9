package fault

import (
	"context"
	"database/sql"
	"errors"

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

// Read-modify-write in MySQL.
const (
	readSQL  = "SELECT stock FROM good_stock WHERE goods_id = ?"
	writeSQL = "UPDATE good_stock SET stock = ?, version = version + 1 WHERE goods_id = ?"
)

// errHeld is a refusal: somebody else holds the lock.
var errHeld = errors.New("the lock is held")

// readUnits reads the item's stock.
func (s *Stage) readUnits(ctx context.Context, db *sql.DB) (units int64, err error) {
	err = db.QueryRowContext(ctx, readSQL, s.Item).Scan(&units)
	return units, err
}

// writeUnits overwrites the item's stock, and returns it.
func (s *Stage) writeUnits(ctx context.Context, db *sql.DB, units int64) (int64, error) {
	_, err := db.ExecContext(ctx, writeSQL, units, s.Item)
	return units, err
}

// readAndWrite takes units in two steps.
func (s *Stage) readAndWrite(ctx context.Context, db *sql.DB, count int64) (remaining int64, err error) {
	units, err := s.readUnits(ctx, db)
	if err != nil {
		return 0, err
	}
	return s.writeUnits(ctx, db, units-count)
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
