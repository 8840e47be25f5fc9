package mutants

import (
	"context"
	"database/sql/driver"
	"errors"
	"strings"
	"sync/atomic"

	"github.com/go-sql-driver/mysql"

	"stock/internal/stock"
)

// records is in the statement that records the outcomes of requests that have keys. Its last arguments are those of the
// columns of the last row.
const records = "INSERT INTO ledger"

// The columns of the ledger that mutants change.
const (
	ledgerItem      = 2
	ledgerCount     = 3
	ledgerRemaining = 4
	ledgerColumns   = 10
	// firstRow is the first argument of the first row of a batch, after those of the UPDATE and the item of the epoch.
	firstRow = 4
)

var ledgerBugs = []Mutant{
	{
		Name: "ledger-forgets", Strategy: "update",
		Planted: "1 row in 200 is not recorded.",
		change:  onStatement(200, records, withoutRows),
	},
	{
		Name: "ledger-wrong-count", Strategy: "update",
		Planted: "1 row in 100 has one unit more than was sold.",
		change:  onArgs(100, records, addToRow(ledgerCount, 1)),
	},
	{
		Name: "ledger-wrong-remaining", Strategy: "update",
		Planted: "1 row in 100 has another remaining stock than the buyer was told.",
		change:  onArgs(100, records, addToRow(ledgerRemaining, 1)),
	},
	{
		Name: "ledger-wrong-item", Strategy: "update",
		Planted: "1 row in 100 is of the item with the next id.",
		change:  onArgs(100, records, addToRow(ledgerItem, 1)),
	},
	{
		Name: "ledger-no-deduction", Strategy: "update",
		Planted: "1 row in 200 is recorded without the deduction.",
		change:  rewrite(200, deducts, unchanged),
	},
	{
		Name: "ledger-again-same-replica", Strategy: "update",
		Planted: "A request that is sent again to the same replica gets its answer and is deducted again.",
		change:  deductAgain(func(sent resent) bool { return sent.own }),
	},
	{
		Name: "ledger-again-later", Strategy: "update",
		Planted: "A request that is sent again after ten others gets its answer and is deducted again.",
		change:  deductAgain(func(sent resent) bool { return sent.own && sent.others >= 10 }),
	},
	{
		Name: "ledger-again-elsewhere", Strategy: "update",
		Planted: "A request that is sent again to the other replica gets its answer and is deducted again.",
		change:  deductAgain(func(sent resent) bool { return sent.replayed && !sent.own }),
	},
	{
		Name: "ledger-again-in-flight", Strategy: "update",
		Planted: "A request that is sent again while the first one is in flight is refused and deducted nevertheless.",
		change:  deductAgain(func(sent resent) bool { return sent.inFlight }),
	},
	{
		Name: "batch-ledger-again", Strategy: "batch",
		Planted: "A request that is sent again gets its answer and is deducted again.",
		change:  deductAgain(func(sent resent) bool { return sent.replayed }),
	},
	{
		Name: "ledger-replays-less", Strategy: "update",
		Planted: "A replay tells one unit less than the first answer.",
		change: onReplay(func(_ stock.Request, receipt *stock.Receipt) error {
			receipt.Remaining--
			return nil
		}),
	},
	{
		Name: "ledger-replays-sold-out", Strategy: "update",
		Planted: "A replay of a sale says sold out.",
		change:  onReplay(func(req stock.Request, _ *stock.Receipt) error { return soldOut(req) }),
	},
	{
		Name: "ledger-hides-a-replay", Strategy: "update",
		Planted: "A replay is not marked as one.",
		change: onReplay(func(_ stock.Request, receipt *stock.Receipt) error {
			receipt.Replayed = false
			return nil
		}),
	},
	{
		Name: "ledger-feigns-a-replay", Strategy: "update",
		Planted: "1 first answer in 50 is marked as a replay.",
		change:  onReceipt(50, func(_ stock.Request, receipt *stock.Receipt) { receipt.Replayed = true }),
	},
	{
		Name: "batch-ledger-replays-less", Strategy: "batch",
		Planted: "A replay tells one unit less than the first answer.",
		change: onReplay(func(_ stock.Request, receipt *stock.Receipt) error {
			receipt.Remaining--
			return nil
		}),
	},
	{
		Name: "batch-ledger-forgets", Strategy: "batch",
		Planted: "A batch of several does not record its last row.",
		change:  onStatement(1, anotherRow, withoutLastRow),
	},
	{
		Name: "batch-ledger-wrong-remaining", Strategy: "batch",
		Planted: "1 batch in 50 records another remaining stock than its first buyer was told.",
		change:  onArgs(50, records, add(firstRow+ledgerRemaining, 1)),
	},
	{
		Name: "update-records-after", Strategy: "update",
		Planted: "A key is recorded after the COMMIT of its sale.",
		change:  onStatement(1, "; "+records, recordAfter("COMMIT", nil)),
	},
	{
		Name: "update-keeps-a-key", Strategy: "update",
		Planted: "1 sale in 100 fails with a deadlock, is rolled back, and its key is kept.",
		change:  onStatement(100, "; "+records, recordAfter("ROLLBACK", &mysql.MySQLError{Number: deadlock})),
	},
	{
		Name: "update-forgets-a-refusal", Strategy: "update",
		Planted: "Refusals are not recorded.",
		change:  forgetRefusals,
	},
	{
		Name: "update-cancels-twice", Strategy: "update",
		Planted: "Cancellations of one sale at the same time give its units back twice.",
		change:  rewrite(1, "outcome = 'done' AND cancelled = ?", "outcome = 'done' AND (cancelled = ? OR TRUE)"),
	},
	{
		Name: "update-cancels-beyond", Strategy: "update",
		Planted: "1 cancellation in 5 gives back one unit more than was sold.",
		change:  onArgs(5, "SET stock = stock + ?, version = version + 1 WHERE goods_id = ? AND epoch = ?", add(0, 1)),
	},
}

// anotherRow is in a statement that inserts several rows into the ledger.
const anotherRow = ", (?, ?, ?, ?, CAST(LAST_INSERT_ID() AS SIGNED) + ?, ?, ?, ?, ?, ?, @epoch0, UTC_TIMESTAMP(6))"

// anotherLine is in a statement that inserts the lines of an order into the ledger.
const anotherLine = ", (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, @epoch1, UTC_TIMESTAMP(6))"

// addToRow returns an edit of onArgs: it adds to a column of the last row.
func addToRow(column int, units int64) func([]driver.NamedValue) {
	return func(args []driver.NamedValue) { add(len(args)-ledgerColumns+column, units)(args) }
}

// withoutRows leaves out the rows of the ledger, and nothing else of the message.
func withoutRows(
	ctx context.Context, statement string, args []driver.NamedValue, next executeFunc,
) (driver.Result, error) {
	kept, rest, _ := strings.Cut(statement, "; "+records)
	if strings.HasSuffix(rest, "; COMMIT") {
		rest = "; COMMIT"
	} else {
		rest = ""
	}
	return next(ctx, kept+rest, args[:strings.Count(kept, "?")])
}

// deadlock is the number of MySQL's error.
const deadlock = 1213

// recordAfter ends the transaction of a deduction before its rows are inserted. Then it fails as told, if at all.
func recordAfter(
	end string, failure error,
) func(context.Context, string, []driver.NamedValue, executeFunc) (driver.Result, error) {
	return func(
		ctx context.Context, statement string, args []driver.NamedValue, next executeFunc,
	) (driver.Result, error) {
		deduction, rows, _ := strings.Cut(statement, "; "+records)
		own := strings.Count(deduction, "?")
		result, err := next(ctx, deduction+"; "+end, args[:own])
		if err != nil {
			return nil, err
		}
		if _, err = next(ctx, records+strings.TrimSuffix(rows, "; COMMIT"), args[own:]); err != nil {
			return nil, err
		}
		return result, failure
	}
}

// forgetRefusals leaves out the statements that record refusals. They have no part in a transaction.
func forgetRefusals(p *plan) {
	p.execute = func(next executeFunc) executeFunc {
		return func(ctx context.Context, statement string, args []driver.NamedValue) (driver.Result, error) {
			if strings.HasPrefix(statement, records) {
				p.strikes.Add(1)
				return faked{rows: 1}, nil
			}
			return next(ctx, statement, args)
		}
	}
}

// withoutLastRow leaves out the last of several rows.
func withoutLastRow(
	ctx context.Context, statement string, args []driver.NamedValue, next executeFunc,
) (driver.Result, error) {
	return next(ctx, strings.Replace(statement, anotherRow, "", 1), args[:len(args)-ledgerColumns])
}

// resent is a request that was sent again.
type resent struct {
	replayed bool  // it got the first answer
	inFlight bool  // the first one had no answer yet
	own      bool  // this replica gave the first answer
	others   int64 // requests that this replica has answered since
}

// deductAgain deducts once more, without a key and without telling anybody, when a request is sent again in a certain
// way.
func deductAgain(when func(resent) bool) change {
	return func(p *plan) {
		var answered memory[string, int64] // the number of the answer
		var answers atomic.Int64
		p.deduct = func(next deductFunc) deductFunc {
			return func(ctx context.Context, req stock.Request) (stock.Receipt, error) {
				receipt, err := next(ctx, req)
				if req.Key == "" {
					return receipt, err
				}
				number := answers.Add(1)
				var again resent
				switch {
				case errors.Is(err, stock.ErrInProgress):
					again.inFlight = true
				case err == nil && receipt.Replayed:
					at, own := answered.get(req.Key)
					again = resent{replayed: true, own: own, others: number - at}
				case err == nil:
					answered.swap(req.Key, number)
				}
				if when(again) {
					p.strikes.Add(1)
					keyless := req
					keyless.Key = ""
					_, _ = next(ctx, keyless)
				}
				return receipt, err
			}
		}
	}
}

// onReplay changes what the replay of a sale tells.
func onReplay(edit func(stock.Request, *stock.Receipt) error) change {
	return func(p *plan) {
		p.deduct = func(next deductFunc) deductFunc {
			return func(ctx context.Context, req stock.Request) (stock.Receipt, error) {
				receipt, err := next(ctx, req)
				if err == nil && receipt.Replayed {
					p.strikes.Add(1)
					err = edit(req, &receipt)
				}
				return receipt, err
			}
		}
	}
}
