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
	return s.ask(client, count)(deduct())
}

// ask begins a deduction of a practice, for a story in which several are under way at the same time. answer ends it and
// records it, with the results of perform's deduct.
func (s *Stage) ask(client string, count int64) (answer func(remaining int64, err error) history.Op) {
	op := history.Op{Kind: history.Deduct, GoodsID: s.Item, Count: count}
	op.Name, op.Attempts, op.SentNS = requestName(s.Item, client), 1, monotonic.Now()
	answered := s.asks(client, "", op.Name)
	return func(remaining int64, err error) history.Op {
		answered()
		op.ReceivedNS, op.Remaining = monotonic.Now(), remaining
		if err == nil {
			op.Outcome, op.Status, op.OmitsRemaining = history.Sold, 200, s.Strategy.OmitsRemaining()
		} else {
			op.Outcome, op.Status, op.Error = history.Busy, 503, err.Error()
		}
		s.record(client, op)
		return op
	}
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
