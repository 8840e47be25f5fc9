package fault

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"
)

// rowWaits knows the transactions of a server, and which of their statements wait for rows that others have locked. All
// stories on a server share one, because InnoDB refreshes its tables of transactions only if nobody has read them for
// 100 ms ("InnoDB INFORMATION_SCHEMA Transaction and Locking Information" in the MySQL manual).
type rowWaits struct {
	mu           sync.Mutex
	asked        time.Time
	transactions []innodbTrx
}

// innodbTrx is a transaction as information_schema.innodb_trx shows it.
type innodbTrx struct {
	thread    int64 // CONNECTION_ID() of its session
	level     string
	statement string // that is carried out; empty: none
	waits     bool   // for a row
}

// rowWaitsInterval is the time between two looks at the transactions.
const rowWaitsInterval = 120 * time.Millisecond

// find returns a transaction that matches, as far as that was looked up since the given time, or nil: earlier, another
// statement of the same item may have waited, such as the one that put it on sale.
func (w *rowWaits) find(
	ctx context.Context, db *sql.DB, since time.Time, match func(innodbTrx) bool,
) (*innodbTrx, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if time.Since(w.asked) >= rowWaitsInterval {
		asked := time.Now()
		var err error
		if w.transactions, err = readTransactions(ctx, db); err != nil {
			return nil, err
		}
		w.asked = asked
	}
	if w.asked.Before(since) {
		return nil, nil
	}
	for _, t := range w.transactions {
		if match(t) {
			return &t, nil
		}
	}
	return nil, nil
}

// errNeedsPrivilege is MySQL's ER_SPECIFIC_ACCESS_DENIED_ERROR.
const errNeedsPrivilege = 1227

func readTransactions(ctx context.Context, db *sql.DB) (transactions []innodbTrx, err error) {
	const query = `SELECT trx_mysql_thread_id, trx_isolation_level, COALESCE(trx_query, ''), trx_state = 'LOCK WAIT'
		FROM information_schema.innodb_trx`
	rows, err := db.QueryContext(ctx, query)
	if reply, ok := errors.AsType[*mysql.MySQLError](err); ok && reply.Number == errNeedsPrivilege {
		return nil, fmt.Errorf("%w: it looks for waiting transactions in information_schema.innodb_trx, for which the "+
			"account of MySQL needs PROCESS: GRANT PROCESS ON *.* TO …", errLeftOut)
	}
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var t innodbTrx
		if err := rows.Scan(&t.thread, &t.level, &t.statement, &t.waits); err != nil {
			return nil, err
		}
		transactions = append(transactions, t)
	}
	return transactions, rows.Err()
}
