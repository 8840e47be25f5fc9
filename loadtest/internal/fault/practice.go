package fault

import (
	"context"
	"database/sql"
	"errors"
	"maps"

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

// openMySQL opens connections of the story's own to the database. The variables are system variables of each session,
// such as innodb_lock_wait_timeout. The caller closes the pool.
func (d *Deployment) openMySQL(ctx context.Context, variables map[string]string) (*sql.DB, error) {
	config, err := mysql.ParseDSN(d.Addresses.MySQLDSN)
	if err != nil {
		return nil, err
	}
	config.InterpolateParams = true
	config.Logger = &mysql.NopLogger{} // stories break connections
	if config.Params == nil {
		config.Params = map[string]string{}
	}
	maps.Copy(config.Params, variables)
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	if err := db.PingContext(ctx); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// transaction is one that a practice uses to deduct from its item.
type transaction struct {
	*sql.Tx
	item int64
}

// inTransaction does work between BEGIN and COMMIT. If work fails, it rolls back.
func (s *Stage) inTransaction(
	ctx context.Context, db *sql.DB, level sql.IsolationLevel, work func(transaction) error,
) error {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: level})
	if err != nil {
		return err
	}
	defer tx.Rollback() // after COMMIT, there is nothing to roll back
	// MariaDB 11.6.2 and later refuse to lock a row that has changed since the transaction's first read (1020), unless
	// told not to. Other servers ignore the comment.
	const asOthers = "SET @ignored = 0 /*M!110602 , SESSION innodb_snapshot_isolation = OFF */"
	if _, err := tx.ExecContext(ctx, asOthers); err != nil {
		return err
	}
	if err := work(transaction{tx, s.Item}); err != nil {
		return err
	}
	return tx.Commit()
}

// readForUpdate locks the row and reads its stock.
func (t transaction) readForUpdate(ctx context.Context) (units int64, err error) {
	err = t.QueryRowContext(ctx, "SELECT stock FROM good_stock WHERE goods_id = ? FOR UPDATE", t.item).Scan(&units)
	return units, err
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
	db, err := s.openMySQL(s.ctx, nil)
	s.check(err)
	s.atEnd = append(s.atEnd, func() { db.Close() })
	return db
}

// whileLocked plays a part of the story while another transaction has locked the row of an item.
func (s *Stage) whileLocked(item int64, part func()) {
	err := s.inTransaction(s.ctx, s.mysql(), sql.LevelDefault, func(tx transaction) error {
		tx.item = item
		if _, err := tx.readForUpdate(s.ctx); err != nil {
			return err
		}
		s.Stepf("another transaction has locked the row of item %d", item)
		return tell(part)
	})
	s.check(err)
}
