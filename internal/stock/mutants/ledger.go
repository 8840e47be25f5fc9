package mutants

import (
	"context"
	"database/sql/driver"
	"strings"
	"sync"
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
	ledgerColumns   = 8
)

var ledgerBugs = []Mutant{
	mutant("ledger-forgets", "update", "1 row in 200 is not recorded.",
		onEvery(200, records, withoutRows)),
	mutant("ledger-wrong-count", "update", "1 row in 100 has one unit more than was sold.",
		onEvery(100, records, addToRow(ledgerCount, 1))),
	mutant("ledger-wrong-remaining", "update", "1 row in 100 has another remaining stock than the buyer was told.",
		onEvery(100, records, addToRow(ledgerRemaining, 1))),
	mutant("ledger-wrong-item", "update", "1 row in 100 is of the item with the next id.",
		onEvery(100, records, addToRow(ledgerItem, 1))),
	mutant("ledger-no-deduction", "update", "1 row in 200 is recorded without the deduction.",
		rewrite(200, deducts, unchanged)),
	mutant("ledger-again-same-replica", "update",
		"A request that is sent again to the same replica gets its answer and is deducted again.",
		deductAgain(func(sent resent) bool { return sent.own })),
	mutant("ledger-again-later", "update",
		"A request that is sent again after ten others gets its answer and is deducted again.",
		deductAgain(func(sent resent) bool { return sent.own && sent.others >= 10 })),
	mutant("ledger-again-elsewhere", "update",
		"A request that is sent again to the other replica gets its answer and is deducted again.",
		deductAgain(func(sent resent) bool { return sent.replayed && !sent.own })),
	mutant("ledger-again-in-flight", "update",
		"A request that is sent again to the same replica while the first one is in flight is deducted again.",
		deductAgain(func(sent resent) bool { return sent.inFlight })),
	mutant("ledger-replays-less", "update", "A replay tells one unit less than the first answer.",
		onAnswer(1, isReplay, addRemaining(-1))),
	mutant("ledger-replays-sold-out", "update", "A replay of a sale says sold out.",
		onAnswer(1, isReplay, func(a *answer) { a.err = soldOut(a.req) })),
	mutant("ledger-hides-a-replay", "update", "A replay is not marked as one.",
		onAnswer(1, isReplay, func(a *answer) { a.receipt.Replayed = false })),
	mutant("ledger-feigns-a-replay", "update", "1 first answer in 50 is marked as a replay.",
		onAnswer(50, isSale, func(a *answer) { a.receipt.Replayed = true })),
	mutant("batch-forgets", "batch", "A batch of several does not record its last row.",
		onEvery(1, anotherRow, withoutLastRow)),
	mutant("update-records-after", "update", "A key is recorded after the COMMIT of its sale.",
		instead(1, "; "+records, recordAfter("COMMIT", nil))),
	mutant("update-keeps-a-key", "update", "1 sale in 100 fails with a deadlock, is rolled back, and its key is kept.",
		instead(100, "; "+records, recordAfter("ROLLBACK", &mysql.MySQLError{Number: deadlock}))),
	mutant("update-forgets-a-refusal", "update", "Refusals are not recorded.",
		forgetRefusals),
	mutant("update-cancels-twice", "update", "Cancellations of one sale at the same time give its units back twice.",
		rewrite(1, "outcome = 'done' AND cancelled = ?", "outcome = 'done' AND (cancelled = ? OR TRUE)")),
	mutant("update-cancels-beyond", "update", "1 cancellation in 5 gives back one unit more than was sold.",
		onEvery(5, "SET stock = stock + ?, version = version + 1 WHERE goods_id = ? AND epoch = ?", adding(0, 1))),
}

// anotherRow is in a statement that inserts several rows into the ledger.
const anotherRow = ", (?, ?, ?, ?, CAST(LAST_INSERT_ID() AS SIGNED) + ?, ?, ?, ?, @epoch0, UTC_TIMESTAMP(6))"

// anotherLine is in a statement that inserts the lines of an order into the ledger.
const anotherLine = ", (?, ?, ?, ?, ?, ?, ?, ?, @epoch1, UTC_TIMESTAMP(6))"

// addToRow is an edit of onEvery: it adds to a column of the last row.
func addToRow(column int, units int64) func(*statement) {
	return func(s *statement) { s.add(len(s.args)-ledgerColumns+column, units) }
}

// withoutRows leaves out the rows of the ledger, and nothing else of the message.
func withoutRows(s *statement) {
	kept, rest, _ := strings.Cut(s.text, "; "+records)
	s.text, s.args = kept, s.args[:strings.Count(kept, "?")]
	if strings.HasSuffix(rest, "; COMMIT") {
		s.text += "; COMMIT"
	}
}

// deadlock is the number of MySQL's error.
const deadlock = 1213

// recordAfter ends the transaction of a deduction before its rows are inserted. Then it fails as told, if at all.
func recordAfter(end string, failure error) func(*statement) (driver.Result, error) {
	return func(s *statement) (driver.Result, error) {
		deduction, rows, _ := strings.Cut(s.text, "; "+records)
		own := strings.Count(deduction, "?")
		result, err := s.also(deduction+"; "+end, s.args[:own])
		if err != nil {
			return nil, err
		}
		if _, err = s.also(records+strings.TrimSuffix(rows, "; COMMIT"), s.args[own:]); err != nil {
			return nil, err
		}
		return result, failure
	}
}

// forgetRefusals leaves out the statements that record refusals. They have no part in a transaction.
func forgetRefusals(p *plan) {
	p.execute = func(s *statement) (driver.Result, error) {
		if strings.HasPrefix(s.text, records) {
			p.strikes.Add(1)
			return faked{rows: 1}, nil
		}
		return s.result()
	}
}

// withoutLastRow leaves out the last of several rows.
func withoutLastRow(s *statement) {
	s.text, s.args = strings.Replace(s.text, anotherRow, "", 1), s.args[:len(s.args)-ledgerColumns]
}

// resent is a request that was sent again.
type resent struct {
	replayed bool  // it got the first answer
	inFlight bool  // the first one had no answer yet from this replica
	own      bool  // this replica gave the first answer
	others   int64 // requests that this replica has answered since
}

// deductAgain deducts once more, without a key and without telling anybody, when a request is sent again in a certain
// way.
func deductAgain(when func(resent) bool) change {
	return func(p *plan) {
		var answered, inFlight sync.Map // by key; answered has the number of the answer
		var answers atomic.Int64
		p.deduct = func(ctx context.Context, req stock.Request, next deductFunc) (stock.Receipt, error) {
			if req.Key == "" {
				return next(ctx, req)
			}
			_, known := inFlight.LoadOrStore(req.Key, nil)
			again := resent{inFlight: known}
			if !known {
				defer inFlight.Delete(req.Key)
			}
			receipt, err := next(ctx, req)
			number := answers.Add(1)
			switch {
			case err == nil && receipt.Replayed:
				again.replayed = true
				if at, own := answered.Load(req.Key); own {
					again.own, again.others = true, number-at.(int64)
				}
			case err == nil:
				answered.Store(req.Key, number)
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
