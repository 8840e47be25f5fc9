package fault

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"stock/loadtest/internal/history"
	"stock/loadtest/internal/oracle"
	"stock/loadtest/internal/report"
)

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

// take deducts units of any item, and sets in the line what remains.
func (t transaction) take(ctx context.Context, line *history.Line) error {
	const query = "UPDATE good_stock SET stock = stock - ?, version = version + 1 WHERE goods_id = ?"
	if _, err := t.ExecContext(ctx, query, line.Count, line.GoodsID); err != nil {
		return err
	}
	return t.QueryRowContext(ctx, "SELECT stock FROM good_stock WHERE goods_id = ?", line.GoodsID).Scan(&line.Remaining)
}

// playOppositeTransactions has two transactions update two rows in opposite order.
func playOppositeTransactions(ctx context.Context, s *Stage) error {
	db, err := s.openMySQL(ctx, nil)
	if err != nil {
		return err
	}
	defer db.Close()
	second := s.newItem()
	lines := []history.Line{{GoodsID: s.Item, Count: 1}, {GoodsID: second, Count: 1}}
	linesOfB := []history.Line{{GoodsID: second, Count: 2}, {GoodsID: s.Item, Count: 2}}
	var b history.Op
	var all sync.WaitGroup
	hasOne, done := newEvent(), newEvent()
	buyAsB := func() {
		defer done.happen()
		b = s.takeBoth(ctx, db, "B", linesOfB, func() error { hasOne.happen(); return nil })
	}
	waits := false
	var failure error
	a := s.takeBoth(ctx, db, "A", lines, func() error {
		all.Go(buyAsB)
		select {
		case <-hasOne.happened:
		case <-done.happened: // without it
		}
		waits, failure = s.awaitRowWait(ctx, db, s.Item, done.happened)
		if waits {
			s.Stepf("each has updated its first item, and B waits for A's (innodb_trx)")
		}
		return failure
	})
	all.Wait()
	if failure != nil {
		return failure
	}
	if waits && (a.Outcome == history.Sold) != (b.Outcome == history.Sold) && strings.Contains(a.Error+b.Error, "1213") {
		s.Provef("each waited for the row that the other had updated, and one of them got error 1213 (deadlock)")
	}
	return nil
}

// takeBoth orders two items in one transaction. It calls between when it has deducted the first.
func (s *Stage) takeBoth(
	ctx context.Context, db *sql.DB, client string, lines []history.Line, between func() error,
) history.Op {
	return s.performOrder(client, lines, func() error {
		return s.inTransaction(ctx, db, sql.LevelDefault, func(tx transaction) error {
			err := tx.take(ctx, &lines[0])
			if err == nil {
				err = between()
			}
			if err == nil {
				err = tx.take(ctx, &lines[1])
			}
			return err
		})
	})
}

// event is something that happens once. Telling so again does nothing.
type event struct {
	happened <-chan struct{} // closed when it has happened
	happen   func()
}

func newEvent() event {
	c := make(chan struct{})
	return event{c, sync.OnceFunc(func() { close(c) })}
}

// await waits for the event.
func (e event) await(ctx context.Context) error {
	select {
	case <-e.happened:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// redisLockWait is how long a practice waits for a lock in Redis.
const redisLockWait = 1500 * time.Millisecond

// playTwoRedisLocks has two orders lock their two items in Redis, and deduct under both locks.
func playTwoRedisLocks(ctx context.Context, s *Stage, ascending bool) error {
	db, err := s.openMySQL(ctx, nil)
	if err != nil {
		return err
	}
	defer db.Close()
	client := s.openRedis()
	defer client.Close()
	second := s.newItem()
	began := time.Now()
	a, b := newTwoLocks("A", 1, s.Item, second), newTwoLocks("B", 2, second, s.Item)
	prove := s.proveCrossed
	if ascending {
		b = newTwoLocks("B", 2, s.Item, second)
		prove = s.proveBehind
	}
	proven := newEvent() // until then, nobody has both locks
	a.goOn, b.goOn = proven, proven
	if !ascending {
		a.goOn, b.goOn = b.hasFirst, a.hasFirst
	}
	var both sync.WaitGroup
	both.Go(func() { a.buy(ctx, s, db, client) })
	if err = a.hasFirst.await(ctx); err == nil {
		both.Go(func() { b.buy(ctx, s, db, client) })
		err = prove(ctx, client, a, b)
	}
	proven.happen()
	both.Wait()
	if err != nil {
		return err
	}
	s.buyWithin("C", began, patience, func(name string) history.Op {
		return newTwoLocks(name, 1, s.Item, second).buy(ctx, s, db, client)
	})
	return nil
}

// proveCrossed proves that A and B each have one lock, and were refused the other's.
func (s *Stage) proveCrossed(ctx context.Context, client *redis.Client, a, b *twoLocks) error {
	if err := errors.Join(a.refused.await(ctx), b.refused.await(ctx)); err != nil {
		return err
	}
	owners, err := client.MGet(ctx, s.itemLock(a.lines[0].GoodsID), s.itemLock(b.lines[0].GoodsID)).Result()
	switch {
	case err != nil:
		return err
	case owners[0] != a.client || owners[1] != b.client:
		return fmt.Errorf("the locks of the two items are held by %v and %v", owners[0], owners[1])
	}
	s.Provef("each has one lock and was refused the other's: Redis has %v and %v as their holders", owners[0], owners[1])
	return nil
}

// proveBehind proves that A has the lock that B asks for first.
func (s *Stage) proveBehind(ctx context.Context, client *redis.Client, a, b *twoLocks) error {
	if err := b.refused.await(ctx); err != nil {
		return err
	}
	owner, err := client.Get(ctx, s.itemLock(b.lines[0].GoodsID)).Result()
	switch {
	case err != nil:
		return err
	case owner != a.client:
		return fmt.Errorf("the lock of the first item is held by %q", owner)
	}
	s.Provef("B was refused the lock of its first item, which A has: Redis has %s as its holder", owner)
	return nil
}

// twoLocks is an order that locks its items one after the other, in the given order.
type twoLocks struct {
	client            string
	lines             []history.Line
	hasFirst, refused event // a lock; or the order has ended
	goOn              event // it may ask for its second lock
}

// newTwoLocks returns an order of two items that does not wait for anybody before its second lock.
func newTwoLocks(client string, count int64, items ...int64) *twoLocks {
	o := &twoLocks{client: client, hasFirst: newEvent(), refused: newEvent()}
	for _, item := range items {
		o.lines = append(o.lines, history.Line{GoodsID: item, Count: count})
	}
	o.goOn = o.hasFirst
	return o
}

// itemLock is the key of the lock of an item, of the practices that lock several.
func (s *Stage) itemLock(item int64) string {
	return s.Addresses.KeyPrefix + "practice:{" + strconv.FormatInt(item, 10) + "}"
}

func (o *twoLocks) buy(ctx context.Context, s *Stage, db *sql.DB, client *redis.Client) history.Op {
	defer o.hasFirst.happen()
	defer o.refused.happen()
	return s.performOrder(o.client, o.lines, func() error {
		var held []string
		defer func() { client.Del(ctx, held...) }()
		for _, line := range o.lines {
			if err := o.lock(ctx, client, s.itemLock(line.GoodsID)); err != nil {
				return err
			}
			held = append(held, s.itemLock(line.GoodsID))
			o.hasFirst.happen()
			if err := o.goOn.await(ctx); err != nil {
				return err
			}
		}
		return s.inTransaction(ctx, db, sql.LevelDefault, func(tx transaction) error {
			return errors.Join(tx.take(ctx, &o.lines[0]), tx.take(ctx, &o.lines[1]))
		})
	})
}

// lock tries to set the key until it is granted or the longest wait has passed.
func (o *twoLocks) lock(ctx context.Context, client *redis.Client, key string) error {
	for deadline := time.Now().Add(redisLockWait); ; time.Sleep(pollInterval) {
		err := client.SetArgs(ctx, key, o.client, redis.SetArgs{Mode: "NX", TTL: time.Minute}).Err()
		if !errors.Is(err, redis.Nil) {
			return err
		}
		o.refused.happen()
		if time.Now().After(deadline) {
			return errors.New("the lock of another is in the way: gave up after " + redisLockWait.String())
		}
	}
}

// playLockWaitTimeout ends A's transaction in the given way after the error.
func playLockWaitTimeout(ctx context.Context, s *Stage, end func(*sql.Tx) error) error {
	db, err := s.openMySQL(ctx, map[string]string{"innodb_lock_wait_timeout": "1"})
	if err != nil {
		return err
	}
	defer db.Close()
	second := s.newItem()
	s.whileLocked(second, func() {
		lines := []history.Line{{GoodsID: s.Item, Count: 1}, {GoodsID: second, Count: 1}}
		s.performOrder("A", lines, func() error {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			a := transaction{tx, s.Item}
			err = errors.Join(a.take(ctx, &lines[0]), a.take(ctx, &lines[1]))
			if refused, ok := errors.AsType[*mysql.MySQLError](err); ok && refused.Number == 1205 {
				s.Provef("A has deducted the first item, and gets error 1205 (lock wait timeout) for the second")
			}
			return errors.Join(err, end(tx))
		})
	})
	return nil
}

// playTwoItems has A and B order the same two items: each reads both rows, and writes both if a column of the first row
// has not changed.
func playTwoItems(ctx context.Context, s *Stage, check string) error {
	db, err := s.openMySQL(ctx, nil)
	if err != nil {
		return err
	}
	defer db.Close()
	second := s.newItem()
	practice := checkedByFirst{s: s, db: db, check: check}
	linesOfB := []history.Line{{GoodsID: s.Item, Count: 1}, {GoodsID: second, Count: 2}}
	linesOfA := []history.Line{{GoodsID: s.Item, Count: 1}, {GoodsID: second, Count: 1}}
	var failure error
	s.performOrder("A", linesOfA, func() error {
		return practice.buy(ctx, linesOfA, func(before checkedRow) error {
			s.Stepf("A has read %d of the first item", before.stock)
			s.performOrder("B", linesOfB, func() error { return practice.buy(ctx, linesOfB, nil) })
			s.restock(s.Item, 1)
			var after checkedRow
			if after, failure = practice.read(ctx, s.Item); failure == nil && after.stock == before.stock {
				s.Provef("the stock of the first item is %d again before A writes, and its version has risen from %d to %d",
					after.stock, before.version, after.version)
			}
			return failure
		})
	})
	return failure
}

// checkedByFirst orders several items by optimistic locking: a check of the first row stands for all rows that were
// read.
type checkedByFirst struct {
	s     *Stage
	db    *sql.DB
	check string // the column of the first row that must not have changed
}

// checkedRow is what was read of an item.
type checkedRow struct{ stock, version int64 }

// errChanged is a refusal: the row has changed since it was read.
var errChanged = errors.New("the row has changed")

func (c checkedByFirst) read(ctx context.Context, item int64) (row checkedRow, err error) {
	const query = "SELECT stock, version FROM good_stock WHERE goods_id = ?"
	err = c.db.QueryRowContext(ctx, query, item).Scan(&row.stock, &row.version)
	return row, err
}

// buy tries twice. Between the first read and the write, it calls meanwhile with what it has read of the first item.
func (c checkedByFirst) buy(ctx context.Context, lines []history.Line, meanwhile func(checkedRow) error) error {
	for try := 1; ; try++ {
		var rows []checkedRow
		for _, line := range lines {
			row, err := c.read(ctx, line.GoodsID)
			if err != nil {
				return err
			}
			rows = append(rows, row)
		}
		if try == 1 && meanwhile != nil {
			if err := meanwhile(rows[0]); err != nil {
				return err
			}
		}
		err := c.write(ctx, lines, rows)
		if !errors.Is(err, errChanged) || try == 2 {
			return err
		}
		c.s.Stepf("the write is refused: the row has changed")
	}
}

// write overwrites the stock of all items, if the checked column of the first is as it was read.
func (c checkedByFirst) write(ctx context.Context, lines []history.Line, rows []checkedRow) error {
	return c.s.inTransaction(ctx, c.db, sql.LevelDefault, func(tx transaction) error {
		for i := range lines {
			lines[i].Remaining = rows[i].stock - lines[i].Count
			query, args := writeSQL, []any{lines[i].Remaining, lines[i].GoodsID}
			if i == 0 {
				query += " AND " + c.check + " = ?"
				args = append(args, map[string]int64{"stock": rows[0].stock, "version": rows[0].version}[c.check])
			}
			result, err := tx.ExecContext(ctx, query, args...)
			if err != nil {
				return err
			}
			if written, err := result.RowsAffected(); err != nil || written == 0 {
				return errors.Join(err, errChanged)
			}
		}
		return nil
	})
}

// lockedUnits is the story of rows that are locked and not sold.
var lockedUnits = Scenario{
	Name:    "false-sold-out/locked-units",
	Title:   "A has locked all units of an item, one row each, and gives up while B asks for one with SKIP LOCKED.",
	Applies: noStrategy,
	Practices: []Practice{
		{
			Name: "skip-locked-once", Store: oracle.Units, Claim: claim("undersells", report.Unsafe),
			Play: playLockedUnits(false),
		},
		{
			Name: "skip-locked-then-wait", Store: oracle.Units, Claim: claim("correct", report.Safe),
			Play: playLockedUnits(true),
		},
	},
}

// playLockedUnits has B ask once more and wait, or not.
func playLockedUnits(asksAgain bool) func(context.Context, *Stage) error {
	return func(ctx context.Context, s *Stage) error {
		db, err := s.openMySQL(ctx, nil)
		if err != nil {
			return err
		}
		defer db.Close()
		if err := s.makeUnits(ctx, db); err != nil {
			return err
		}
		gaveUp := errors.New("the buyer of all units has given up")
		answered := make(chan struct{})
		err = s.inTransaction(ctx, db, sql.LevelReadCommitted, func(a transaction) error {
			deleted, err := a.ExecContext(ctx, deleteUnitSQL, s.Item)
			if err != nil {
				return err
			}
			locked, err := deleted.RowsAffected()
			if err != nil {
				return err
			}
			s.background.Go(func() {
				defer close(answered)
				s.perform("B", 1, func() (int64, error) { return 0, s.buyUnit(ctx, db, asksAgain) })
			})
			waits, err := s.awaitRowWait(ctx, db, s.Item, answered)
			if err != nil {
				return err
			}
			s.Provef("A has locked %d rows, which it will not sell; B waits for one of them: %v", locked, waits)
			return gaveUp
		})
		if !errors.Is(err, gaveUp) {
			return err
		}
		<-answered
		return nil
	}
}

// makeUnits makes a row for each unit of the item.
func (s *Stage) makeUnits(ctx context.Context, db *sql.DB) error {
	for unit := range units {
		if _, err := db.ExecContext(ctx, "INSERT INTO good_unit (goods_id, unit) VALUES (?, ?)", s.Item, unit+1); err != nil {
			return err
		}
	}
	_, err := db.ExecContext(ctx, "UPDATE unit_stock SET unmade = 0, made = ? WHERE goods_id = ?", units, s.Item)
	return err
}

// buyUnit sells a unit that nobody has locked. If there is none, it waits for one, or takes the item for sold out.
func (s *Stage) buyUnit(ctx context.Context, db *sql.DB, asksAgain bool) error {
	return s.inTransaction(ctx, db, sql.LevelReadCommitted, func(tx transaction) error {
		var unit int64
		err := tx.QueryRowContext(ctx, unitSQL+" SKIP LOCKED", s.Item).Scan(&unit)
		if asksAgain && errors.Is(err, sql.ErrNoRows) {
			err = tx.QueryRowContext(ctx, unitSQL, s.Item).Scan(&unit)
		}
		if errors.Is(err, sql.ErrNoRows) {
			return fmt.Errorf("%w: no row is free", errSoldOut)
		}
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, deleteUnitSQL+" AND unit = ?", s.Item, unit)
		return err
	})
}

// Statements of a buyer of rows.
const (
	unitSQL       = "SELECT unit FROM good_unit FORCE INDEX (PRIMARY) WHERE goods_id = ? LIMIT 1 FOR UPDATE"
	deleteUnitSQL = "DELETE good_unit FROM good_unit FORCE INDEX (PRIMARY) WHERE goods_id = ?"
)

// playPool has users take a lock of MySQL on one connection, and read and write on a second one.
func playPool(ctx context.Context, s *Stage, ownPool bool) error {
	locks, err := s.openPool(ctx)
	if err != nil {
		return err
	}
	defer locks.Close()
	work := locks
	if ownPool {
		if work, err = s.openPool(ctx); err != nil {
			return err
		}
		defer work.Close()
	}
	user := poolUser{s: s, locks: locks, work: work, holds: make(chan struct{})}
	began := time.Now()
	patient, cancel := context.WithTimeout(ctx, poolPatience)
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() {
		s.perform("A", 1, func() (int64, error) { return user.buy(patient, user.awaitOthers) })
	})
	select {
	case <-user.holds:
	case <-patient.Done():
		return errors.New("client A did not get the lock")
	}
	for i := 1; i < poolUsers; i++ {
		all.Go(func() {
			s.perform(fmt.Sprintf("B%d", i), 1, func() (int64, error) { return user.buy(patient, nil) })
		})
	}
	all.Wait()
	if s.sold() > 0 {
		return nil
	}
	s.buyWithin("C", began, patience, func(client string) history.Op {
		return s.perform(client, 1, func() (int64, error) { return user.buy(ctx, nil) })
	})
	return nil
}

// openPool opens a pool of few connections.
func (s *Stage) openPool(ctx context.Context) (*sql.DB, error) {
	db, err := s.openMySQL(ctx, nil)
	if err == nil {
		db.SetMaxOpenConns(poolConns)
		db.SetMaxIdleConns(poolConns)
	}
	return db, err
}

// sold counts the requests that were sold so far.
func (s *Stage) sold() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, op := range s.ops {
		if op.Outcome == history.Sold {
			n++
		}
	}
	return n
}

// poolUser buys with two connections.
type poolUser struct {
	s           *Stage
	locks, work *sql.DB
	holds       chan struct{} // closed when A holds the lock
}

// buy calls meanwhile, if it is not nil, when it has the lock.
func (u poolUser) buy(ctx context.Context, meanwhile func(context.Context) error) (remaining int64, err error) {
	lock, err := u.locks.Conn(ctx)
	if err != nil {
		return 0, err
	}
	defer lock.Close()
	var granted bool
	const query = "SELECT GET_LOCK(?, 10)"
	if err := lock.QueryRowContext(ctx, query, u.s.lockKey()).Scan(&granted); err != nil {
		return 0, err
	}
	if !granted {
		return 0, errHeld
	}
	defer lock.ExecContext(context.WithoutCancel(ctx), "DO RELEASE_ALL_LOCKS()") //nolint:errcheck // ends with conn
	if meanwhile != nil {
		if err := meanwhile(ctx); err != nil {
			return 0, err
		}
	}
	work, err := u.work.Conn(ctx)
	if err != nil {
		return 0, fmt.Errorf("there is no connection to work on: %w", err)
	}
	defer work.Close()
	var units int64
	if err := work.QueryRowContext(ctx, readSQL, u.s.Item).Scan(&units); err != nil {
		return 0, err
	}
	_, err = work.ExecContext(ctx, writeSQL, units-1, u.s.Item)
	return units - 1, err
}

// awaitOthers waits until others that ask for the lock have all the rest of its pool.
func (u poolUser) awaitOthers(ctx context.Context) error {
	close(u.holds)
	err := eventually(ctx, "the others have all connections", func() (bool, error) {
		return u.locks.Stats().InUse == poolConns, nil
	})
	if err == nil {
		u.s.Provef("all %d connections are in use: A holds the lock on one, and the others ask for it on the rest, %s",
			poolConns, u.describeWork())
	}
	return err
}

func (u poolUser) describeWork() string {
	if u.work == u.locks {
		return "while A needs one to read and write"
	}
	return "while A has a pool of its own to read and write"
}

// killHolder kills the connection that holds a lock of GET_LOCK, and waits until the lock is free.
func (s *Stage) killHolder(side *sql.DB, name string) {
	var id int64
	s.check(side.QueryRowContext(s.ctx, "SELECT IS_USED_LOCK(?)", name).Scan(&id))
	s.check(execute(side, fmt.Sprintf("KILL CONNECTION %d", id))(s.ctx))
	s.eventually("the lock is free", func() (free bool) {
		s.check(side.QueryRowContext(s.ctx, "SELECT IS_FREE_LOCK(?)", name).Scan(&free))
		return free
	})
	s.Provef("connection %d was killed, and IS_FREE_LOCK says that its lock is free while A is inside", id)
}

// getLockSameConnection works on the connection that holds the lock: both end together.
var getLockSameConnection = Practice{
	Name:  "get-lock-same-connection",
	Claim: claim("loses its connection to the stock with the lock", report.Safe),
	Play: func(ctx context.Context, s *Stage) error {
		db, err := s.openMySQL(ctx, nil)
		if err != nil {
			return err
		}
		defer db.Close()
		holder, err := s.lockAndRead(ctx, db)
		if err != nil {
			return err
		}
		defer holder.close()
		a := s.ask("A", 1)
		s.killHolder(db, holder.name)
		b := s.perform("B", 2, func() (int64, error) {
			next, err := s.lockAndRead(ctx, db)
			if err != nil {
				return 0, err
			}
			defer next.close()
			return next.write(ctx, 2)
		})
		if b.Outcome != history.Sold {
			return fmt.Errorf("client B was not sold anything: %s", b.Error)
		}
		a.answer(holder.write(ctx, 1)) // the server has ended the connection: nothing was written
		return nil
	},
}

// locked is a connection that holds a lock of GET_LOCK, and has read the stock.
type locked struct {
	conn  *sql.Conn
	name  string
	item  int64
	units int64
}

func (s *Stage) lockAndRead(ctx context.Context, db *sql.DB) (l *locked, err error) {
	l = &locked{name: s.lockKey(), item: s.Item}
	if l.conn, err = db.Conn(ctx); err != nil {
		return nil, err
	}
	var granted bool
	err = l.conn.QueryRowContext(ctx, "SELECT GET_LOCK(?, 1)", l.name).Scan(&granted)
	if err == nil && !granted {
		err = errHeld
	}
	if err == nil {
		err = l.conn.QueryRowContext(ctx, readSQL, l.item).Scan(&l.units)
	}
	if err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// write deducts, and returns the units that remain.
func (l *locked) write(ctx context.Context, count int64) (remaining int64, err error) {
	_, err = l.conn.ExecContext(ctx, writeSQL, l.units-count, l.item)
	return l.units - count, err
}

// close closes the connection, and with it ends the lock.
func (l *locked) close() {
	_ = l.conn.Raw(func(any) error { return driver.ErrBadConn })
	l.conn.Close()
}

var oppositeOrderPractices = []Practice{
	{
		Name:  "transactions-in-opposite-order",
		Claim: claim("deadlock: one of two is rolled back", report.Safe),
		Play:  playOppositeTransactions,
	},
	{
		Name:  "redis-locks-in-opposite-order",
		Claim: claim("deadlock: both wait until they give up", report.Blocked),
		Play:  func(ctx context.Context, s *Stage) error { return playTwoRedisLocks(ctx, s, false) },
	},
	{
		Name:  "redis-locks-in-ascending-order",
		Claim: claim("correct", report.Safe),
		Play:  func(ctx context.Context, s *Stage) error { return playTwoRedisLocks(ctx, s, true) },
	},
}

var commitAfterTimeoutPractices = []Practice{
	{
		Name:  "commit-after-timeout",
		Claim: claim("half the order is deducted", report.Unsafe),
		Play:  func(ctx context.Context, s *Stage) error { return playLockWaitTimeout(ctx, s, (*sql.Tx).Commit) },
	},
	{
		Name:  "rollback-after-timeout",
		Claim: claim("correct", report.Safe),
		Play:  func(ctx context.Context, s *Stage) error { return playLockWaitTimeout(ctx, s, (*sql.Tx).Rollback) },
	},
}

var abaPractices = []Practice{
	{
		Name:  "two-items-checked-by-stock",
		Claim: claim("loses-updates", report.Unsafe),
		Play:  func(ctx context.Context, s *Stage) error { return playTwoItems(ctx, s, "stock") },
	},
	{
		Name:  "two-items-checked-by-version",
		Claim: claim("refuses the stale write", report.Safe),
		Play:  func(ctx context.Context, s *Stage) error { return playTwoItems(ctx, s, "version") },
	},
}

var poolPractices = []Practice{
	{
		Name:  "lock-and-work-share-a-pool",
		Claim: claim("nobody buys until those who wait give up", report.Blocked),
		Play:  func(ctx context.Context, s *Stage) error { return playPool(ctx, s, false) },
	},
	{
		Name:  "lock-has-its-own-pool",
		Claim: claim("correct", report.Safe),
		Play:  func(ctx context.Context, s *Stage) error { return playPool(ctx, s, true) },
	},
}

const (
	poolConns    = 4 // of each pool
	poolUsers    = 8 // of one item, at the same replica
	poolPatience = 2 * time.Second
)
