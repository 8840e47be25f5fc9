package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"

	"github.com/go-sql-driver/mysql"

	"stock/internal/stock"
)

// Error numbers of MySQL, MariaDB and TiDB.
const (
	erConCount         = 1040 // too many connections
	erServerShutdown   = 1053
	erDupEntry         = 1062
	erTooManyUser      = 1203 // too many connections of this user
	erLockWaitTimeout  = 1205
	erUserLimit        = 1226 // the account's MAX_USER_CONNECTIONS
	erWrongValueForVar = 1231
	erLockNowait       = 3572 // NOWAIT, for which MariaDB has erLockWaitTimeout

	// The disk of the server is full: the statement was rolled back.
	erDiskFull       = 1021
	erRecordFileFull = 1114

	// The server takes no writes: it is a replica, or was the primary until now.
	erOptionPrevents = 1290 // --read-only
	erReadOnlyTx     = 1792 // transaction_read_only
	erReadOnlyMode   = 1836 // innodb_read_only

	erIsolationUnsupported = 8048 // TiDB has no such isolation level

	// The server does not let this account in, or not into the database.
	erDBAccessDenied     = 1044
	erAccessDenied       = 1045
	erNoDatabase         = 1049
	erHostBlocked        = 1129
	erHostNotPrivileged  = 1130
	erTableAccessDenied  = 1142
	erColumnAccessDenied = 1143
	erAccessDeniedNoPass = 1698
	erMustChangePassword = 1820
	erPasswordExpired    = 1862
	erAccountLocked      = 3118
	erAccountLockedMaria = 4151

	// The whole transaction was rolled back because of a conflict.
	erCheckread      = 1020 // MariaDB: the row changed since the snapshot (innodb_snapshot_isolation)
	erLockDeadlock   = 1213
	erForUpdateRetry = 8002 // TiDB: another transaction wrote what SELECT FOR UPDATE read
	erTxnRetryable   = 8022 // TiDB: COMMIT failed and may be tried again
	erWriteConflict  = 9007 // TiDB: another transaction wrote first
)

// hasNumber reports whether err is one of these errors of the server.
func hasNumber(err error, numbers ...uint16) bool {
	server, ok := errors.AsType[*mysql.MySQLError](err)
	return ok && slices.Contains(numbers, server.Number)
}

// IsBusy reports whether the server refused a statement or a connection that it may accept later.
func IsBusy(err error) bool {
	return isRolledBack(err) || hasNumber(err, erLockWaitTimeout, erLockNowait, erConCount, erTooManyUser, erUserLimit)
}

// isRolledBack reports whether the server rolled a transaction back because of a conflict; a retry may succeed. A row
// that stays locked is no such conflict: the server has already waited for it as long as the statement allows.
func isRolledBack(err error) bool {
	return hasNumber(err, erCheckread, erLockDeadlock, erForUpdateRetry, erTxnRetryable, erWriteConflict)
}

// overtaken reports whether a request wrote nothing because of another one: a retry may succeed.
func overtaken(err error) bool {
	return isRolledBack(err) || errors.Is(err, errKeyTaken) || errors.Is(err, stock.ErrChanged)
}

// isReadOnly reports whether the server refused a write because it takes none. It has rolled the transaction back if
// that was at COMMIT.
func isReadOnly(err error) bool {
	return hasNumber(err, erOptionPrevents, erReadOnlyTx, erReadOnlyMode)
}

// isRejected reports whether the server takes no writes, or nothing at all from this account: a person, or a failover,
// has to change that.
func isRejected(err error) bool {
	return isReadOnly(err) || hasNumber(err, erDBAccessDenied, erAccessDenied, erNoDatabase, erHostBlocked,
		erHostNotPrivileged, erTableAccessDenied, erColumnAccessDenied, erAccessDeniedNoPass, erMustChangePassword,
		erPasswordExpired, erAccountLocked, erAccountLockedMaria)
}

// IsDuplicate reports whether a row with this key exists already.
func IsDuplicate(err error) bool { return hasNumber(err, erDupEntry) }

// isHeld reports whether a statement met a row of another request. The statement has done nothing, and its transaction
// goes on.
func isHeld(err error) bool { return hasNumber(err, erDupEntry, erLockNowait, erLockWaitTimeout) }

func isContextError(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// refusal classifies an error after which the server kept nothing: that of a read, or of a statement in a transaction
// that is rolled back.
func refusal(err error) error {
	_, answered := errors.AsType[*mysql.MySQLError](err)
	switch {
	case err == nil, errors.Is(err, sql.ErrNoRows), errors.Is(err, stock.ErrBusy): // ErrBusy: it was not even sent
		return err
	case !answered && isContextError(err):
		return fmt.Errorf("%w: MySQL did not finish in time, nothing was written: %w", stock.ErrBusy, err)
	case !answered, isRejected(err), hasNumber(err, erServerShutdown, erDiskFull, erRecordFileFull,
		erIsolationUnsupported):
		return fmt.Errorf("%w: MySQL: %w", stock.ErrUnavailable, err)
	case IsBusy(err):
		return fmt.Errorf("%w: MySQL: %w", stock.ErrBusy, err)
	}
	return fmt.Errorf("MySQL: %w", err)
}

// classifyConnect classifies an error of the wait for a connection: nothing was sent.
func classifyConnect(err error) error {
	if isContextError(err) {
		return fmt.Errorf("%w: no MySQL connection was free in time: %w", stock.ErrBusy, err)
	}
	return refusal(err)
}

// errNoMatch is the error of a statement that matched no row, or too few: it has done nothing.
var errNoMatch = errors.New("no row matched")

// orMissing is the error of a statement about an item, which may have found none.
func orMissing(goodsID int64, err error) error {
	if errors.Is(err, sql.ErrNoRows) || errors.Is(err, errNoMatch) {
		return stock.UnknownItem(goodsID, "MySQL")
	}
	return err
}

// classifyWrite classifies an error of a statement that was sent and commits by itself.
func classifyWrite(err error) error {
	_, answered := errors.AsType[*mysql.MySQLError](err)
	// The driver returns ErrBadConn only if it found the connection closed before it sent anything.
	if err == nil || answered || errors.Is(err, driver.ErrBadConn) {
		return refusal(err)
	}
	return fmt.Errorf("%w: MySQL did not reply, or lost its cluster during the commit: %w", stock.ErrUnknown, err)
}

// classifyCommit classifies an error of COMMIT.
func classifyCommit(err error) error {
	// database/sql rolled back instead of sending COMMIT, or the driver found the connection closed.
	unsent := errors.Is(err, sql.ErrTxDone) || isContextError(err) || errors.Is(err, driver.ErrBadConn)
	// A cluster or a distributed database finds conflicts as late as this.
	if err == nil || unsent || isRolledBack(err) || isReadOnly(err) {
		return refusal(err)
	}
	return fmt.Errorf("%w: COMMIT failed or its reply was lost: %w", stock.ErrUnknown, err)
}

// classifyTogether classifies an error of a transaction that was sent in one message.
func classifyTogether(err error) error {
	_, answered := errors.AsType[*mysql.MySQLError](err)
	inserts := IsDuplicate(err) || hasNumber(err, erRecordFileFull)
	if answered && !inserts && !IsBusy(err) && !isRejected(err) && !otherRowCount(err) {
		return classifyCommit(err) // it may have been COMMIT that failed
	}
	return classifyWrite(err)
}

// otherRowCount reports whether expectOneRow or expectBefore has ended a transaction.
func otherRowCount(err error) bool { return hasNumber(err, erWrongValueForVar) }

// errKeyTaken ends a transaction because its key has an answer already.
var errKeyTaken = errors.New("the idempotency key is taken")

func keyTaken(err error) error { return fmt.Errorf("%w: %w: %w", stock.ErrBusy, errKeyTaken, err) }

// orTaken is the errKeyTaken of a row whose key exists already, or another error as it is.
func orTaken(err error) error {
	if IsDuplicate(err) {
		return keyTaken(err)
	}
	return err
}
