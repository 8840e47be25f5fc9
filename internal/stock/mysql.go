package stock

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jmoiron/sqlx"
)

// mysqlStore keeps the stock in the table good_stock. Every write counts the version up, so that strategies can be mixed
// on one row without optimistic locking missing a change.
type mysqlStore struct{ db *sqlx.DB }

const (
	selectSQL    = "SELECT stock FROM good_stock WHERE goods_id = ?"
	epochSQL     = "SELECT epoch FROM good_stock WHERE goods_id = ?"
	overwriteSQL = "UPDATE good_stock SET stock = ?, version = version + 1 WHERE goods_id = ?"
)

func (s mysqlStore) read(ctx context.Context, goodsID int64) (units int64, err error) {
	err = s.db.GetContext(ctx, &units, selectSQL, goodsID)
	return units, unwritten(goodsID, err)
}

func (s mysqlStore) write(ctx context.Context, goodsID, units int64) error {
	result, err := s.exec(ctx, overwriteSQL, units, goodsID)
	if err != nil {
		return err
	}
	return found(result, goodsID)
}

// set makes the epoch from the time, so that a database that is made anew does not count from the beginning, and from the
// last one and the given one, so that it grows whatever the clock does.
func (s mysqlStore) set(ctx context.Context, goodsID, units, last int64) (epoch int64, err error) {
	err = s.inTx(ctx, nil, Request{}, func(tx *sqlx.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO good_stock (goods_id, stock, epoch) VALUES (?, ?, ?)
			ON DUPLICATE KEY UPDATE stock = VALUES(stock), version = version + 1, fence = 0, fence_issuer = '',
			epoch = GREATEST(epoch + 1, VALUES(epoch))`, goodsID, units, max(time.Now().UnixMicro(), last+1))
		if err != nil {
			return refusal(err)
		}
		return unwritten(goodsID, tx.GetContext(ctx, &epoch, epochSQL, goodsID))
	})
	return epoch, err
}

// epoch reads the epoch of the stock.
func (s mysqlStore) epoch(ctx context.Context, goodsID int64) (epoch int64, err error) {
	err = s.db.GetContext(ctx, &epoch, epochSQL, goodsID)
	return epoch, unwritten(goodsID, err)
}

// goods lists all goods.
func (s mysqlStore) goods(ctx context.Context) (goods []int64, err error) {
	if err := s.db.SelectContext(ctx, &goods, "SELECT goods_id FROM good_stock"); err != nil {
		return nil, refusal(err)
	}
	return goods, nil
}

// exec runs one writing statement that commits by itself. It takes the connection in a step of its own: a wait for the
// pool that ends has sent nothing, and database/sql returns the same error for that and for a reply that did not come.
//
// The statement itself runs apart from ctx. Once it is sent, giving up would not stop it, only hide what it did, and a
// lock around it would be given back while it is still on its way. The server ends it in time, with an answer, by its
// innodb_lock_wait_timeout; a server that is silent is given up by the readTimeout of the DSN.
func (s mysqlStore) exec(ctx context.Context, query string, args ...any) (sql.Result, error) {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return nil, unsent(err)
	}
	defer conn.Close()
	result, err := conn.ExecContext(context.WithoutCancel(ctx), query, args...)
	return result, written(err)
}

// found tells a row that was matched from one that is not there. It needs clientFoundRows=true in the DSN: a row whose
// value did not change counts as found.
func found(result sql.Result, goodsID int64) error {
	rows, err := result.RowsAffected()
	if err == nil && rows == 0 {
		err = fmt.Errorf("%w: goods %d is not in MySQL", ErrUnknownGoods, goodsID)
	}
	return err
}

// Error numbers of MySQL, MariaDB and TiDB that mean "not now".
const (
	erConCount        = 1040 // too many connections
	erServerShutdown  = 1053
	erTooManyUser     = 1203 // too many connections of this user
	erLockWaitTimeout = 1205
	erLockNowait      = 3572

	// The whole transaction was rolled back, for the sake of another one.
	erCheckread      = 1020 // MariaDB: the row changed since the snapshot (innodb_snapshot_isolation)
	erLockDeadlock   = 1213
	erForUpdateRetry = 8002 // TiDB: what SELECT FOR UPDATE has read was written by another transaction
	erTxnRetryable   = 8022 // TiDB: COMMIT has failed, and may be tried again
	erWriteConflict  = 9007 // TiDB: another transaction has written first
)

// erDupEntry says that a row with this key is there already.
const erDupEntry = 1062

// mysqlNotNow says that the server has refused a statement, or a connection, that it may take later.
func mysqlNotNow(err error) bool {
	var server *mysql.MySQLError
	if !errors.As(err, &server) {
		return false
	}
	switch server.Number {
	case erLockWaitTimeout, erLockNowait, erConCount, erTooManyUser:
		return true
	}
	return undone(err)
}

// undone says that the server has rolled back a transaction that it would take now: two stood in each other's way. Of a
// row that stays locked (1205) there is nothing to hope, after all the time that the server has waited for it.
func undone(err error) bool {
	var server *mysql.MySQLError
	if !errors.As(err, &server) {
		return false
	}
	switch server.Number {
	case erCheckread, erLockDeadlock, erForUpdateRetry, erTxnRetryable, erWriteConflict:
		return true
	}
	return false
}

// unsent classifies an error of a statement that never left, so that nothing was deducted.
func unsent(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return fmt.Errorf("%w: no MySQL connection was free in time: %w", ErrBusy, err)
	default:
		return refusal(err)
	}
}

// refusal classifies an error after which the server kept nothing.
func refusal(err error) error {
	var server *mysql.MySQLError
	if !errors.As(err, &server) {
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
			return fmt.Errorf("%w: MySQL did not finish in time, nothing was written: %w", ErrBusy, err)
		}
		return fmt.Errorf("%w: MySQL: %w", ErrUnavailable, err)
	}
	switch {
	case mysqlNotNow(err):
		return fmt.Errorf("%w: MySQL: %w", ErrBusy, err)
	case server.Number == erServerShutdown:
		return fmt.Errorf("%w: MySQL: %w", ErrUnavailable, err)
	}
	return fmt.Errorf("MySQL: %w", err)
}

// unwritten classifies an error of a read, or of anything in a transaction that will be rolled back.
func unwritten(goodsID int64, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, sql.ErrNoRows):
		return fmt.Errorf("%w: goods %d is not in MySQL", ErrUnknownGoods, goodsID)
	default:
		return refusal(err)
	}
}

// written classifies an error of a statement that was sent and commits by itself.
func written(err error) error {
	var server *mysql.MySQLError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &server), errors.Is(err, driver.ErrBadConn):
		// The server said no, or the driver found the connection closed before it sent anything.
		return refusal(err)
	default:
		return fmt.Errorf("%w: MySQL did not reply: %w", ErrUnknown, err)
	}
}

// committed classifies an error of COMMIT.
func committed(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, sql.ErrTxDone), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled),
		errors.Is(err, driver.ErrBadConn):
		// database/sql rolled back instead of sending COMMIT, or the driver found the connection closed.
		return refusal(err)
	case undone(err):
		return refusal(err) // a cluster or a distributed database finds conflicts as late as this
	default:
		return fmt.Errorf("%w: COMMIT did not succeed or its reply was lost: %w", ErrUnknown, err)
	}
}

// inTx runs work between BEGIN and COMMIT. Whatever fails before COMMIT is rolled back, since a statement that failed by a
// lock wait (1205) leaves its transaction open, and what it did before would be committed later.
func (s mysqlStore) inTx(ctx context.Context, options *sql.TxOptions, req Request, work func(*sqlx.Tx) error) error {
	tx, err := s.db.BeginTxx(ctx, options)
	if err != nil {
		return unsent(err)
	}
	defer tx.Rollback()
	if err := work(tx); err != nil {
		return err
	}
	if err := req.pause(ctx, BeforeCommit); err != nil {
		return interrupted(err)
	}
	return committed(tx.Commit())
}

func (mysqlStore) atomic() bool { return true }

func (s mysqlStore) writeAll(ctx context.Context, steps Request, levels []level) error {
	return s.inTx(ctx, nil, steps, func(tx *sqlx.Tx) error { return mysqlTx{tx}.writeAll(ctx, levels) })
}

// mysqlTx is the store inside a transaction: nothing is written before COMMIT.
type mysqlTx struct{ tx *sqlx.Tx }

func (s mysqlTx) read(ctx context.Context, goodsID int64) (units int64, err error) {
	err = s.tx.GetContext(ctx, &units, selectSQL, goodsID)
	return units, unwritten(goodsID, err)
}

func (s mysqlTx) write(ctx context.Context, goodsID, units int64) error {
	result, err := s.tx.ExecContext(ctx, overwriteSQL, units, goodsID)
	if err != nil {
		return refusal(err)
	}
	return found(result, goodsID)
}

func (s mysqlTx) writeAll(ctx context.Context, levels []level) error {
	for _, l := range levels {
		var err error
		if l.claim.issuer == "" {
			err = s.write(ctx, l.goodsID, l.units)
		} else {
			err = s.writeFenced(ctx, l)
		}
		if err != nil {
			return &LineError{l.goodsID, err}
		}
	}
	return nil
}
