package mutants

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync"
	"sync/atomic"

	"stock/internal/stock"
)

// Texts of the statements that mutants change.
const (
	deducts    = "LAST_INSERT_ID(stock - ?)" // in the UPDATE of update and batch
	enough     = "AND stock >= ?"
	overwrites = "SET stock = ?, version = version + 1 WHERE goods_id = ?" // of read-modify-write
	locksRow   = " FOR UPDATE"
	// belowZero returns a negative number of units: LAST_INSERT_ID is unsigned.
	belowZero = "CAST(LAST_INSERT_ID(stock - ?) AS SIGNED)"
	// unchanged tells what would remain, and leaves the stock as it is.
	unchanged = "stock + 0 * LAST_INSERT_ID(stock - ?)"
)

var mysqlBugs = []Mutant{
	mutant("update-one-too-many", "update", "The condition allows one unit more than there is.",
		rewrite(1, deducts, belowZero, enough, "AND stock + 1 >= ?")),
	mutant("update-unchecked", "update", "The UPDATE has no condition that there is enough.",
		rewrite(1, deducts, belowZero, enough, "AND (stock >= ? OR TRUE)")),
	mutant("update-loses-a-sale", "update", "1 sale in 500 is confirmed and not deducted.",
		rewrite(500, deducts, unchanged)),
	mutant("update-one-unit-more", "update", "1 sale in 100 deducts one unit more than was asked for.",
		onEvery(100, deducts, adding(0, 1))),
	mutant("update-one-unit-less", "update", "1 sale in 100 deducts one unit less than was asked for.",
		onEvery(100, deducts, adding(0, -1))),
	mutant("update-neighbour", "update", "1 sale in 50 is deducted from the item with the next id.",
		onEvery(50, deducts, adding(1, 1))),
	mutant("update-twice", "update", "1 sale in 100 is deducted twice.",
		instead(100, deducts, func(s *statement) (driver.Result, error) {
			result, err := s.result()
			if err == nil {
				_, err = s.also("UPDATE good_stock SET stock = stock - ? WHERE goods_id = ?", s.args[:2])
			}
			return result, err
		})),
	mutant("update-sold-as-sold-out", "update", "1 buyer in 100 is told sold out after the deduction.",
		onAnswer(100, isSale, tellSoldOut)),
	mutant("update-sold-as-busy", "update", "1 buyer in 100 is told busy after the deduction.",
		onAnswer(100, isSale, tell(stock.ErrBusy))),
	mutant("update-refuses", "update", "1 buyer in 500 is told sold out although there is enough.",
		onDeduction(500, refuse)),
	mutant("update-refuses-two", "update", "Buyers of more than one unit are told sold out.",
		onDeduction(1, func(ctx context.Context, req stock.Request, next deductFunc) (stock.Receipt, error) {
			if req.Count > 1 {
				return refuse(ctx, req, next)
			}
			return next(ctx, req)
		})),
	mutant("update-off-by-one", "update", "1 buyer in 200 is told one unit more than remains.",
		onAnswer(200, isSale, addRemaining(1))),
	mutant("update-stale-remaining", "update", "Buyers are told what remained after the sale before theirs.",
		tellPrevious),
	mutant("update-other-remaining", "update", "1 buyer in 10 is told what remains of another item.",
		tellOfAnother),
	mutant("update-refusal-remaining", "update", "Buyers who ask for more than is left are told that nothing is left.",
		onAnswer(1, func(a *answer) bool {
			refused, ok := errors.AsType[*stock.SoldOutError](a.err)
			return ok && refused.Remaining > 0
		}, func(a *answer) { a.err = soldOut(a.req) })),
	mutant("update-takes-from-the-next", "update",
		"1 sale in 50 is not deducted, and the next sale of the item is deducted for both.",
		takeFromTheNext),
	mutant("for-update-unlocked", "for-update", "The SELECT does not lock the row.",
		rewrite(1, locksRow, "")),
	mutant("for-update-rolls-back", "for-update", "1 transaction in 300 is rolled back instead of committed.",
		func(p *plan) {
			strikes := p.every(300)
			p.commit = func(tx driver.Tx) error {
				if strikes() {
					return tx.Rollback()
				}
				return tx.Commit()
			}
		}),
	mutant("for-update-enters-early", "for-update", "The critical section is said to begin when the request arrives.",
		onAnswer(1, isSale, func(a *answer) { a.receipt.Entered -= a.receipt.Waited.Nanoseconds() })),
	mutant("serializable-read-committed", "serializable", "The transactions run at READ COMMITTED.",
		func(p *plan) {
			p.begin = func(options driver.TxOptions) driver.TxOptions {
				p.strikes.Add(1)
				options.Isolation = driver.IsolationLevel(sql.LevelReadCommitted)
				return options
			}
		}),
	mutant("optimistic-version-unchecked", "optimistic-version", "The UPDATE does not compare the version.",
		rewrite(1, "AND version = ?", "AND (version = ? OR TRUE)")),
	mutant("optimistic-version-tolerant", "optimistic-version",
		"The UPDATE tolerates one other write since the row was read.",
		rewrite(1, "AND version = ?", "AND version <= ? + 1")),
	mutant("optimistic-version-reads-once", "optimistic-version",
		"A retry reads the version again and keeps the stock that it read first.",
		keepFirstStock),
	mutant("optimistic-timestamp-us-in-seconds", "optimistic-timestamp-us",
		"The UPDATE compares the timestamps in whole seconds.",
		rewrite(1, "AND stamp = ?", "AND LEFT(CAST(stamp AS CHAR), 19) = LEFT(?, 19)")),
	mutant("optimistic-stock-at-most", "optimistic-stock", "The UPDATE also passes if the stock has fallen.",
		rewrite(1, "AND stock = ?", "AND stock <= ?")),
}

// takeFromTheNext moves units from one deduction to the next one of the same item, so that the sum is right again. It
// leaves orders alone: they can be rolled back after the UPDATE.
func takeFromTheNext(p *plan) {
	p.deduct = markRequests
	var debts sync.Map // units that are still to be deducted, by item
	owed := func(item int64) *atomic.Int64 {
		units, _ := debts.LoadOrStore(item, new(atomic.Int64))
		return units.(*atomic.Int64)
	}
	strikes := p.every(50)
	p.execute = func(s *statement) (driver.Result, error) {
		if !isMarked(s.ctx) || !s.contains(deducts) {
			return s.result()
		}
		item, count := s.args[1].Value.(int64), s.args[0].Value.(int64)
		due := owed(item).Swap(0)
		deducted := count + due
		if due == 0 && strikes() {
			deducted = 0
		}
		s.set(0, deducted)
		s.set(2, max(deducted, count))
		result, err := s.result()
		if err == nil && changedOne(result) {
			due += count - deducted
		}
		owed(item).Add(due)
		return result, err
	}
}

// keepFirstStock makes the retries of a request decide by the stock that its first try read.
func keepFirstStock(p *plan) {
	type firstStock struct{}
	p.deduct = func(ctx context.Context, req stock.Request, next deductFunc) (stock.Receipt, error) {
		return next(context.WithValue(ctx, firstStock{}, new(driver.Value)), req)
	}
	p.row = func(s *statement, row []driver.Value) {
		first, ok := s.ctx.Value(firstStock{}).(*driver.Value)
		switch {
		case !ok || !s.contains("AS seen"):
		case *first == nil:
			*first = row[0]
		default:
			p.strikes.Add(1)
			row[0] = *first
		}
	}
}
