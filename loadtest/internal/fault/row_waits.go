package fault

import (
	"context"
	"database/sql"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"
)

// rowWaits knows which statements of a server wait for rows that other transactions have locked. All stories on a
// server share one, because InnoDB refreshes its tables of transactions only if nobody has read them for 100 ms
// ("InnoDB INFORMATION_SCHEMA Transaction and Locking Information" in the MySQL manual).
type rowWaits struct {
	mu         sync.Mutex
	asked      time.Time
	statements []string
}

// rowWaitsInterval is the time between two looks at the waiting statements.
const rowWaitsInterval = 120 * time.Millisecond

// rowWaits returns the rowWaits of a server.
func (l *Lab) rowWaits(dsn string) *rowWaits {
	server := dsn
	if config, err := mysql.ParseDSN(dsn); err == nil {
		server = config.Addr
	}
	waits, _ := l.waits.LoadOrStore(server, &rowWaits{})
	return waits.(*rowWaits) //nolint:forcetypeassert // nothing else is stored
}

// of reports whether a statement that names an item waits, as far as that was looked up since the given time: earlier,
// another statement of the same item may have waited, such as the one that put it on sale.
func (w *rowWaits) of(ctx context.Context, db *sql.DB, item int64, since time.Time) (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if time.Since(w.asked) >= rowWaitsInterval {
		asked := time.Now()
		var err error
		if w.statements, err = waitingStatements(ctx, db); err != nil {
			return false, err
		}
		w.asked = asked
	}
	if w.asked.Before(since) {
		return false, nil
	}
	for _, statement := range w.statements {
		if strings.Contains(statement, strconv.FormatInt(item, 10)) {
			return true, nil
		}
	}
	return false, nil
}

func waitingStatements(ctx context.Context, db *sql.DB) (statements []string, err error) {
	const query = "SELECT COALESCE(trx_query, '') FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var statement string
		if err := rows.Scan(&statement); err != nil {
			return nil, err
		}
		statements = append(statements, statement)
	}
	return statements, rows.Err()
}

// awaitRowWait waits until a statement that names the item waits for a locked row, and reports whether one does. It
// returns false if done is closed first.
func (d *Deployment) awaitRowWait(
	ctx context.Context, db *sql.DB, item int64, done <-chan struct{},
) (waits bool, err error) {
	began := time.Now()
	for {
		if waits, err = d.waits.of(ctx, db, item, began); waits || err != nil {
			return waits, err
		}
		select {
		case <-done:
			return false, nil
		case <-ctx.Done():
			return false, ctx.Err()
		case <-time.After(pollInterval):
		}
	}
}
