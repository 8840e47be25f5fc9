package fault

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/go-sql-driver/mysql"

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
		Practices: []Practice{{Name: "read-modify-write", Claim: inTransaction, Play: playReadModifyWrite}},
		Deploy: func(ctx context.Context, l *Lab) (*Deployment, error) {
			at := l.Topology.Addresses()
			var err error
			at.MySQLDSN, err = atIsolation(at.MySQLDSN, words, l.Topology.Environment.MySQLSettings)
			if err != nil {
				return nil, err
			}
			return l.deploy(ctx, at)
		},
		Play: playBetweenReadAndWrite,
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
func playBetweenReadAndWrite(ctx context.Context, s *Stage) error {
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
	waits, err := s.awaitRowWait(ctx, db, s.Item, b.done)
	if err != nil {
		return err
	}
	if err := s.proveLevel(ctx, db, "A is parked at "+point, waits); err != nil {
		return err
	}
	if err := s.release(ctx, a); err != nil {
		return err
	}
	return b.wait()
}

// proveLevel proves that B came in between, and at which isolation level.
func (s *Stage) proveLevel(ctx context.Context, db *sql.DB, where string, waits bool) error {
	const query = "SHOW VARIABLES WHERE Variable_name IN ('transaction_isolation', 'tx_isolation')"
	var name, level string
	if err := db.QueryRowContext(ctx, query).Scan(&name, &level); err != nil {
		return err
	}
	if waits {
		s.Provef("%s is %s; %s, and B's statement waits for the row (innodb_trx)", name, level, where)
	} else {
		s.Provef("%s is %s; %s, and B is answered meanwhile", name, level, where)
	}
	return nil
}

// playReadModifyWrite does the same with two transactions that read the stock by a plain SELECT, and write it.
func playReadModifyWrite(ctx context.Context, s *Stage) error {
	db, err := s.openMySQL(ctx, nil)
	if err != nil {
		return err
	}
	defer db.Close()
	buy := func(count int64, betweenReadAndWrite func() error) func() (int64, error) {
		return func() (remaining int64, err error) {
			err = s.inTransaction(ctx, db, sql.LevelDefault, func(tx transaction) error {
				units, err := tx.read(ctx)
				if err != nil {
					return err
				}
				if err := betweenReadAndWrite(); err != nil {
					return err
				}
				remaining = units - count
				return tx.write(ctx, remaining)
			})
			return remaining, err
		}
	}
	b := make(chan struct{})
	var failure error
	s.perform("A", 1, buy(1, func() error {
		s.inBackground(func() {
			defer close(b)
			s.perform("B", 2, buy(2, func() error { return nil }))
		})
		waits, err := s.awaitRowWait(ctx, db, s.Item, b)
		failure = errors.Join(err, s.proveLevel(ctx, db, "A has read the stock", waits))
		return failure
	}))
	<-b
	return failure
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
	s.perform("B", 2, func() (remaining int64, err error) {
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
	err = l.conn.QueryRowContext(ctx, "SELECT GET_LOCK(?, 5)", fmt.Sprintf("practice-%d", l.s.Item)).Scan(&granted)
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
