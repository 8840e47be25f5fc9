package mutants

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"slices"
	"strings"
	"sync"

	"stock/internal/stock"
)

// Texts of the statements that mutants change.
const (
	deducts    = "LAST_INSERT_ID(stock - ?)" // in the UPDATE of update, ledger and batch
	enough     = "AND stock >= ?"
	overwrites = "SET stock = ?, version = version + 1 WHERE goods_id = ?" // of read-modify-write
	locksRow   = " FOR UPDATE"
	// belowZero returns a negative number of units: LAST_INSERT_ID is unsigned.
	belowZero = "CAST(LAST_INSERT_ID(stock - ?) AS SIGNED)"
	// unchanged tells what would remain, and leaves the stock as it is.
	unchanged = "stock + 0 * LAST_INSERT_ID(stock - ?)"
)

var mysqlBugs = []Mutant{
	{
		Name: "update-one-too-many", Strategy: "update",
		Planted: "The condition allows one unit more than there is.",
		change:  rewrite(1, deducts, belowZero, enough, "AND stock + 1 >= ?"),
	},
	{
		Name: "update-unchecked", Strategy: "update",
		Planted: "The UPDATE has no condition that there is enough.",
		change:  rewrite(1, deducts, belowZero, enough, "AND (stock >= ? OR TRUE)"),
	},
	{
		Name: "update-loses-a-sale", Strategy: "update",
		Planted: "1 sale in 500 is confirmed and not deducted.",
		change:  rewrite(500, deducts, unchanged),
	},
	{
		Name: "update-one-unit-more", Strategy: "update",
		Planted: "1 sale in 100 deducts one unit more than was asked for.",
		change:  onArgs(100, deducts, add(0, 1)),
	},
	{
		Name: "update-one-unit-less", Strategy: "update",
		Planted: "1 sale in 100 deducts one unit less than was asked for.",
		change:  onArgs(100, deducts, add(0, -1)),
	},
	{
		Name: "update-neighbour", Strategy: "update",
		Planted: "1 sale in 50 is deducted from the item with the next id.",
		change:  onArgs(50, deducts, add(1, 1)),
	},
	{
		Name: "update-twice", Strategy: "update",
		Planted: "1 sale in 100 is deducted twice.",
		change: onStatement(100, deducts, func(
			ctx context.Context, statement string, args []driver.NamedValue, next executeFunc,
		) (driver.Result, error) {
			result, err := next(ctx, statement, args)
			if err == nil {
				_, err = next(ctx, "UPDATE good_stock SET stock = stock - ? WHERE goods_id = ?", args[:2])
			}
			return result, err
		}),
	},
	{
		Name: "update-sold-as-sold-out", Strategy: "update",
		Planted: "1 buyer in 100 is told sold out after the deduction.",
		change:  onDeduction(100, tellSoldOut),
	},
	{
		Name: "update-sold-as-busy", Strategy: "update",
		Planted: "1 buyer in 100 is told busy after the deduction.",
		change:  onDeduction(100, tellBusy),
	},
	{
		Name: "update-refuses", Strategy: "update",
		Planted: "1 buyer in 500 is told sold out although there is enough.",
		change:  onDeduction(500, refuse),
	},
	{
		Name: "update-refuses-two", Strategy: "update",
		Planted: "Buyers of more than one unit are told sold out.",
		change: onDeduction(1, func(ctx context.Context, req stock.Request, next deductFunc) (stock.Receipt, error) {
			if req.Count > 1 {
				return refuse(ctx, req, next)
			}
			return next(ctx, req)
		}),
	},
	{
		Name: "update-off-by-one", Strategy: "update",
		Planted: "1 buyer in 200 is told one unit more than remains.",
		change:  onReceipt(200, func(_ stock.Request, receipt *stock.Receipt) { receipt.Remaining++ }),
	},
	{
		Name: "update-stale-remaining", Strategy: "update",
		Planted: "Buyers are told what remained after the sale before theirs.",
		change:  tellPrevious,
	},
	{
		Name: "update-other-remaining", Strategy: "update",
		Planted: "1 buyer in 10 is told what remains of another item.",
		change:  tellOfAnother,
	},
	{
		Name: "update-refusal-remaining", Strategy: "update",
		Planted: "Buyers who ask for more than is left are told that nothing is left.",
		change:  tellNothingLeft,
	},
	{
		Name: "update-takes-from-the-next", Strategy: "update",
		Planted: "1 sale in 50 is not deducted, and the next sale of the item is deducted for both.",
		change:  takeFromTheNext,
	},
	{
		Name: "for-update-unlocked", Strategy: "for-update",
		Planted: "The SELECT does not lock the row.",
		change:  rewrite(1, locksRow, ""),
	},
	{
		Name: "for-update-rolls-back", Strategy: "for-update",
		Planted: "1 transaction in 300 is rolled back instead of committed.",
		change: func(p *plan) {
			strikes := p.every(300)
			p.commit = func(tx driver.Tx) error {
				if strikes() {
					return tx.Rollback()
				}
				return tx.Commit()
			}
		},
	},
	{
		Name: "for-update-enters-early", Strategy: "for-update",
		Planted: "The critical section is said to begin when the request arrives.",
		change: onReceipt(1, func(_ stock.Request, receipt *stock.Receipt) {
			receipt.Entered -= receipt.Waited.Nanoseconds()
		}),
	},
	{
		Name: "serializable-read-committed", Strategy: "serializable",
		Planted: "The transactions run at READ COMMITTED.",
		change: func(p *plan) {
			p.begin = func(options driver.TxOptions) driver.TxOptions {
				p.strikes.Add(1)
				options.Isolation = driver.IsolationLevel(sql.LevelReadCommitted)
				return options
			}
		},
	},
	{
		Name: "optimistic-version-unchecked", Strategy: "optimistic-version",
		Planted: "The UPDATE does not compare the version.",
		change:  rewrite(1, "AND version = ?", "AND (version = ? OR TRUE)"),
	},
	{
		Name: "optimistic-version-tolerant", Strategy: "optimistic-version",
		Planted: "The UPDATE tolerates one other write since the row was read.",
		change:  rewrite(1, "AND version = ?", "AND version <= ? + 1"),
	},
	{
		Name: "optimistic-version-reads-once", Strategy: "optimistic-version",
		Planted: "A retry reads the version again and keeps the stock that it read first.",
		change:  keepFirstStock,
	},
	{
		Name: "optimistic-timestamp-us-in-seconds", Strategy: "optimistic-timestamp-us",
		Planted: "The UPDATE compares the timestamps in whole seconds.",
		change:  rewrite(1, "AND stamp = ?", "AND LEFT(CAST(stamp AS CHAR), 19) = LEFT(?, 19)"),
	},
	{
		Name: "optimistic-stock-at-most", Strategy: "optimistic-stock",
		Planted: "The UPDATE also passes if the stock has fallen.",
		change:  rewrite(1, "AND stock = ?", "AND stock <= ?"),
	},
}

// takeFromTheNext moves units from one deduction to the next one of the same item, so that the sum is right again. It
// leaves orders alone: they can be rolled back after the UPDATE.
func takeFromTheNext(p *plan) {
	markRequests(p)
	var owed debts
	strikes := p.every(50)
	p.execute = func(next executeFunc) executeFunc {
		return func(ctx context.Context, statement string, args []driver.NamedValue) (driver.Result, error) {
			if ctx.Value(inRequest{}) == nil || !strings.Contains(statement, deducts) {
				return next(ctx, statement, args)
			}
			item, count := args[1].Value.(int64), args[0].Value.(int64)
			due := owed.collect(item)
			deducted := count + due
			if due == 0 && strikes() {
				deducted = 0
			}
			args = slices.Clone(args)
			args[0].Value, args[2].Value = deducted, max(deducted, count)
			result, err := next(ctx, statement, args)
			if err == nil {
				if changedOne(result) {
					due += count - deducted
				}
			}
			owed.add(item, due)
			return result, err
		}
	}
}

// debts are units by item that are still to be deducted.
type debts struct {
	mu    sync.Mutex
	units map[int64]int64
}

func (d *debts) add(item, units int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.units == nil {
		d.units = map[int64]int64{}
	}
	d.units[item] += units
}

// collect returns what is owed of an item, which is nothing from then on.
func (d *debts) collect(item int64) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	units := d.units[item]
	delete(d.units, item)
	return units
}

// keepFirstStock makes the retries of a request decide by the stock that its first try read.
func keepFirstStock(p *plan) {
	type firstStock struct{}
	p.deduct = func(next deductFunc) deductFunc {
		return func(ctx context.Context, req stock.Request) (stock.Receipt, error) {
			return next(context.WithValue(ctx, firstStock{}, new(driver.Value)), req)
		}
	}
	onRow("AS seen", func(ctx context.Context, _ []driver.NamedValue, row []driver.Value) {
		first, ok := ctx.Value(firstStock{}).(*driver.Value)
		switch {
		case !ok:
		case *first == nil:
			*first = row[0]
		default:
			p.strikes.Add(1)
			row[0] = *first
		}
	})(p)
}
