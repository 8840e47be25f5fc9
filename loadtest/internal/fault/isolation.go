package fault

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/go-sql-driver/mysql"

	"stock/loadtest/internal/history"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/scenario"
)

// isolationScenarios are about what a transaction sees of others.
var isolationScenarios = []Scenario{
	isolation("READ UNCOMMITTED"), isolation("READ COMMITTED"), isolation("REPEATABLE READ"), isolation("SERIALIZABLE"),
	readBeforeLock, twoReads,
}

// isolation returns the story of a sale between another one's read and its write, at an isolation level.
func isolation(level string) Scenario {
	words := strings.ReplaceAll(level, " ", "-") // as the system variable spells it
	inTransaction := claim("loses-updates", report.Unsafe)
	if level == "SERIALIZABLE" {
		inTransaction = claim("one of two is rolled back", report.Safe)
	}
	return Scenario{
		Name:    "isolation/" + strings.ToLower(words),
		Title:   "B buys after A has read the stock and before A writes it, at " + level + ".",
		Applies: only("none", "update", "for-update", "optimistic-version", "serializable", "ledger"),
		Claim: func(s scenario.Strategy) Claim {
			if s.Claim.LateWrite == "loses-updates" {
				return claim(s.Claim.LateWrite+" at any level: each statement is a transaction of its own", report.Unsafe)
			}
			return claim("correct at any level", report.Safe)
		},
		Practices: []Practice{{Name: "read-modify-write", Claim: inTransaction, Play: playReadModifyWrite(level)}},
		Deploy: func(ctx context.Context, l *Lab) (*Deployment, error) {
			at := l.Topology.Addresses()
			var err error
			at.MySQLDSN, err = atIsolation(at.MySQLDSN, words, l.Topology.Environment.MySQLSettings)
			if err != nil {
				return nil, err
			}
			return l.deploy(ctx, at)
		},
		Play: func(ctx context.Context, s *Stage) error { return playBetweenReadAndWrite(ctx, s, level) },
	}
}

// atIsolation returns a DSN whose sessions have the isolation level. settings are the server's system variables.
func atIsolation(dsn, level string, settings map[string]string) (string, error) {
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		return "", err
	}
	if config.Params == nil {
		config.Params = map[string]string{}
	}
	config.Params[isolationVariable(settings)] = "'" + level + "'"
	return config.FormatDSN(), nil
}

// isolationVariable is the name of the system variable, which MariaDB before 11.1 calls otherwise than MySQL.
func isolationVariable(settings map[string]string) string {
	if _, known := settings["transaction_isolation"]; known {
		return "transaction_isolation"
	}
	return "tx_isolation"
}

// playBetweenReadAndWrite has B buy while A is parked after its read, or after its write if it reads and writes in one
// statement.
func playBetweenReadAndWrite(ctx context.Context, s *Stage, level string) error {
	db, err := s.openMySQL(ctx, nil)
	if err != nil {
		return err
	}
	defer db.Close()
	a, point, err := s.parkAtFirst(ctx, order{client: "A", at: s.Victim}, "after-read", "before-commit")
	if err != nil {
		return err
	}
	s.Stepf("A is parked at %s", point)
	b := s.start(ctx, order{client: "B", at: s.Survivor, count: 2})
	waits, err := s.awaitTransaction(ctx, db, b.done, waitsFor(s.Item))
	if err != nil {
		return err
	}
	if waits != nil {
		err = s.proveLevel(point, waits.level, level)
	} else {
		err = s.proveDefault(ctx, db, point, b.op)
	}
	if err != nil {
		return err
	}
	if err := s.release(ctx, a); err != nil {
		return err
	}
	return b.wait()
}

// proveLevel proves that B's transaction waits for A's, and that it has the isolation level that it should have.
func (s *Stage) proveLevel(point, level, usual string) error {
	want := usual
	switch s.Strategy.Name { // these choose one themselves
	case "ledger":
		want = "READ COMMITTED"
	case "serializable":
		want = "SERIALIZABLE"
	}
	if level != want {
		return fmt.Errorf("the transaction of client B is at %s, and not at %s", level, want)
	}
	s.Provef("A is parked at %s, and B's statement waits for the row, in a transaction at %s (innodb_trx)", point, level)
	return nil
}

// proveDefault proves that B has bought, and says at which isolation level transactions are that choose none.
func (s *Stage) proveDefault(ctx context.Context, db *sql.DB, point string, b history.Op) error {
	if b.Outcome != history.Sold {
		return fmt.Errorf("client B was not sold anything: %s", b.Error)
	}
	const query = "SHOW VARIABLES WHERE Variable_name IN ('transaction_isolation', 'tx_isolation')"
	var name, level string
	if err := db.QueryRowContext(ctx, query).Scan(&name, &level); err != nil {
		return err
	}
	s.Provef("A is parked at %s, and B has bought meanwhile; the default of their sessions is %s (%s)", point, level, name)
	return nil
}

// playReadModifyWrite does the same with two transactions that read the stock by a plain SELECT, and write it.
func playReadModifyWrite(level string) func(context.Context, *Stage) error {
	return func(ctx context.Context, s *Stage) error {
		db, err := s.openMySQL(ctx, nil)
		if err != nil {
			return err
		}
		defer db.Close()
		var b sync.WaitGroup
		var failure error
		s.perform("A", 1, s.readModifyWrite(ctx, db, 1, func(tx transaction) error {
			failure = s.buyBetween(ctx, db, tx, level, &b)
			return failure
		}))
		b.Wait()
		return failure
	}
}

// readModifyWrite returns a deduction. It calls meanwhile, if it is not nil, between its read and its write.
func (s *Stage) readModifyWrite(
	ctx context.Context, db *sql.DB, count int64, meanwhile func(transaction) error,
) func() (int64, error) {
	return func() (remaining int64, err error) {
		err = s.inTransaction(ctx, db, sql.LevelDefault, func(tx transaction) error {
			units, err := tx.read(ctx)
			if err == nil && meanwhile != nil {
				err = meanwhile(tx)
			}
			if err != nil {
				return err
			}
			remaining = units - count
			return tx.write(ctx, remaining)
		})
		return remaining, err
	}
}

// buyBetween has B buy while A's transaction is between its read and its write. It returns when B waits for a row, or
// has bought.
func (s *Stage) buyBetween(ctx context.Context, db *sql.DB, a transaction, level string, b *sync.WaitGroup) error {
	var thread int64
	if err := a.QueryRowContext(ctx, "SELECT CONNECTION_ID()").Scan(&thread); err != nil {
		return err
	}
	trx, err := s.awaitTransaction(ctx, db, nil, func(t innodbTrx) bool { return t.thread == thread })
	switch {
	case err != nil:
		return err
	case trx.level != level:
		return fmt.Errorf("the transaction of client A is at %s, and not at %s", trx.level, level)
	}
	done := make(chan struct{})
	var op history.Op
	b.Go(func() {
		defer close(done)
		op = s.perform("B", 2, s.readModifyWrite(ctx, db, 2, nil))
	})
	waits, err := s.awaitRowWait(ctx, db, s.Item, done)
	switch {
	case err != nil:
		return err
	case waits:
		s.Provef("A has read the stock in a transaction at %s (innodb_trx), and B's statement waits for the row", level)
	case op.Outcome == history.Sold:
		s.Provef("A has read the stock in a transaction at %s (innodb_trx), and B has bought meanwhile", level)
	default:
		return fmt.Errorf("client B was not sold anything: %s", op.Error)
	}
	return nil
}

// readBeforeLock is the story of a transaction that reads for the first time before it takes the lock. At REPEATABLE
// READ, all its plain reads see the data as of the first one.
var readBeforeLock = Scenario{
	Name:    "read-before-lock",
	Title:   "A's transaction has its first read before it gets the lock, which B holds until it has sold.",
	Applies: noStrategy,
	Practices: []Practice{
		{
			Name:  "read-then-lock",
			Claim: claim("loses-updates", report.Unsafe),
			Play:  readThenLock{level: sql.LevelRepeatableRead}.play,
		},
		{
			Name:  "read-then-lock-read-committed",
			Claim: claim("correct", report.Safe),
			Play:  readThenLock{level: sql.LevelReadCommitted}.play,
		},
		{
			Name:  "read-then-lock-for-update",
			Claim: claim("correct", report.Safe),
			Play:  readThenLock{level: sql.LevelRepeatableRead, read: transaction.readForUpdate}.play,
		},
	},
}

// readThenLock is a practice: BEGIN, SELECT, GET_LOCK, SELECT, UPDATE, COMMIT, RELEASE_LOCK.
type readThenLock struct {
	level sql.IsolationLevel
	read  func(transaction, context.Context) (int64, error) // the one under the lock; nil: a plain SELECT
}

func (r readThenLock) play(ctx context.Context, s *Stage) error {
	db, err := s.openMySQL(ctx, nil)
	if err != nil {
		return err
	}
	defer db.Close()
	if r.read == nil {
		r.read = transaction.read
	}
	s.perform("A", 1, func() (remaining int64, err error) {
		lock := namedLock{s: s, db: db}
		defer func() { err = errors.Join(err, lock.release(ctx)) }()
		err = s.inTransaction(ctx, db, r.level, func(tx transaction) error {
			before, err := tx.read(ctx)
			if err != nil {
				return err
			}
			s.Stepf("A has begun a transaction and reads %d, before it has the lock", before)
			if err := s.buyUnderLock(ctx, db); err != nil {
				return err
			}
			if err := lock.acquire(ctx); err != nil {
				return err
			}
			units, err := r.read(tx, ctx)
			if err != nil {
				return err
			}
			s.Provef("A read %d before B's COMMIT, and reads %d under the lock", before, units)
			remaining = units - 1
			return tx.write(ctx, remaining)
		})
		return remaining, err
	})
	return nil
}

// buyUnderLock has B buy two units, with the lock around its transaction.
func (s *Stage) buyUnderLock(ctx context.Context, db *sql.DB) (err error) {
	lock := namedLock{s: s, db: db}
	if err := lock.acquire(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.release(ctx)) }()
	b := s.perform("B", 2, func() (remaining int64, err error) {
		err = s.inTransaction(ctx, db, sql.LevelDefault, func(tx transaction) error {
			units, err := tx.readForUpdate(ctx)
			if err != nil {
				return err
			}
			remaining = units - 2
			return tx.write(ctx, remaining)
		})
		return remaining, err
	})
	if b.Outcome != history.Sold {
		return fmt.Errorf("client B was not sold anything: %s", b.Error)
	}
	return nil
}

// namedLock is the lock of the story's item by GET_LOCK, on a connection of its own.
type namedLock struct {
	s    *Stage
	db   *sql.DB
	conn *sql.Conn
}

func (l *namedLock) acquire(ctx context.Context) (err error) {
	if l.conn, err = l.db.Conn(ctx); err != nil {
		return err
	}
	var granted bool
	err = l.conn.QueryRowContext(ctx, "SELECT GET_LOCK(?, 5)", l.s.itemLock(l.s.Item)).Scan(&granted)
	if err == nil && !granted {
		err = errors.New("GET_LOCK was not granted within 5 s")
	}
	return err
}

// release ends the connection, and with it the lock, if there is one.
func (l *namedLock) release(ctx context.Context) error {
	if l.conn == nil {
		return nil
	}
	_, err := l.conn.ExecContext(ctx, "DO RELEASE_ALL_LOCKS()")
	return errors.Join(err, l.conn.Close())
}

// twoReads is the story of a transaction that locks the row and then reads it once more without FOR UPDATE.
var twoReads = Scenario{
	Name:    "two-reads",
	Title:   "A locks the row with SELECT FOR UPDATE, and then reads it again by a plain SELECT, which sees older data.",
	Applies: noStrategy,
	Practices: []Practice{
		{Name: "lock-then-plain-read", Claim: claim("loses-updates", report.Unsafe), Play: playTwoReads(false)},
		{Name: "locking-read-alone", Claim: claim("correct", report.Safe), Play: playTwoReads(true)},
	},
}

// playTwoReads has A use what one of its two reads returned.
func playTwoReads(useLockingRead bool) func(context.Context, *Stage) error {
	return func(ctx context.Context, s *Stage) error {
		db, err := s.openMySQL(ctx, nil)
		if err != nil {
			return err
		}
		defer db.Close()
		s.perform("A", 1, func() (remaining int64, err error) {
			err = s.inTransaction(ctx, db, sql.LevelRepeatableRead, func(tx transaction) error {
				if _, err := tx.read(ctx); err != nil { // such as to show the item
					return err
				}
				if err := s.buyUnderLock(ctx, db); err != nil {
					return err
				}
				locked, plain, err := s.readTwice(ctx, tx)
				if err != nil {
					return err
				}
				remaining = plain - 1
				if useLockingRead {
					remaining = locked - 1
				}
				return tx.write(ctx, remaining)
			})
			return remaining, err
		})
		return nil
	}
}

// readTwice reads the stock with FOR UPDATE and without.
func (s *Stage) readTwice(ctx context.Context, tx transaction) (locked, plain int64, err error) {
	if locked, err = tx.readForUpdate(ctx); err != nil {
		return 0, 0, err
	}
	if plain, err = tx.read(ctx); err != nil {
		return 0, 0, err
	}
	if locked != plain {
		s.Provef("in one transaction, SELECT FOR UPDATE returns %d and a plain SELECT after it %d", locked, plain)
	}
	return locked, plain, nil
}
