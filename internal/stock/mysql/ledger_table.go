package mysql

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"stock/internal/stock"
)

// ledgerRow is a row of the table ledger: a deduction, or a line of an order.
type ledgerRow struct {
	Key         []byte `db:"order_key"`
	Line        int
	GoodsID     int64 `db:"goods_id"`
	Count       int   // units deducted, 0 if refused
	Remaining   int64 // units left, as answered; with ledgerBuyerLimit, the units that the buyer had bought
	Outcome     ledgerOutcome
	Fingerprint []byte // identifies what was asked for: 32 bytes
}

type ledgerOutcome string

const (
	ledgerDone       ledgerOutcome = "done"
	ledgerSoldOut    ledgerOutcome = "sold-out"
	ledgerBuyerLimit ledgerOutcome = "buyer-limit"
)

// isAnswer reports whether an error is a refusal that a ledger keeps.
func isAnswer(err error) bool {
	return errors.Is(err, stock.ErrSoldOut) || errors.Is(err, stock.ErrBuyerLimit)
}

// newDeductionRow is the row of a deduction that a strategy is about to carry out.
func newDeductionRow(strategy string, req stock.Request) ledgerRow {
	asked := append([]any{"deduct", strategy, stock.MySQL, req.GoodsID, req.Count}, buyerTerms(req.Buyer)...)
	return newLedgerRow(req.Key, req.GoodsID, asked...)
}

// newOrderRow is the first row of an order that a strategy is about to carry out.
func newOrderRow(strategy string, req stock.OrderRequest) ledgerRow {
	lines := req.Lines()
	asked := []any{"order", strategy, stock.MySQL}
	for _, line := range lines {
		asked = append(asked, line.GoodsID, line.Count)
	}
	return newLedgerRow(req.Key, lines[0].GoodsID, append(asked, buyerTerms(req.Buyer)...)...)
}

// buyerTerms is what a fingerprint has of the buyer. The name comes last, because it may contain spaces.
func buyerTerms(buyer stock.Buyer) []any {
	if buyer.Name == "" {
		return nil
	}
	return []any{"buyer", buyer.Limit, buyer.Name}
}

func newLedgerRow(clientKey string, goodsID int64, asked ...any) ledgerRow {
	key := []byte(clientKey)
	if clientKey == "" {
		key = generateKey()
	}
	return ledgerRow{Key: key, GoodsID: goodsID, Outcome: ledgerDone, Fingerprint: fingerprint(asked...)}
}

// generateKey makes the key of a request whose client gave none. It begins with a byte that no client can send,
// followed by the time, so that such rows are appended to the primary key instead of being scattered over it.
func generateKey() []byte {
	key := make([]byte, 1, 1+8+8)
	key = binary.BigEndian.AppendUint64(key, uint64(time.Now().UnixNano()))
	key = key[:cap(key)]
	_, _ = rand.Read(key[1+8:]) // it never fails
	return key
}

// fingerprint differs for any two requests that ask for different things. Strings other than the last must
// not contain spaces.
func fingerprint(asked ...any) []byte {
	hash := sha256.Sum256(fmt.Appendln(nil, asked...))
	return hash[:]
}

func (r *ledgerRow) done(count int, remaining int64) {
	r.Outcome, r.Count, r.Remaining = ledgerDone, count, remaining
}

// refuse completes the row of a request that ended with err, and reports whether err is a refusal to keep.
func (r *ledgerRow) refuse(err error) bool {
	if e, ok := errors.AsType[*stock.SoldOutError](err); ok {
		r.GoodsID, r.Outcome, r.Count, r.Remaining = e.GoodsID, ledgerSoldOut, 0, e.Remaining
	} else if e, ok := errors.AsType[*stock.BuyerLimitError](err); ok {
		r.GoodsID, r.Outcome, r.Count, r.Remaining = e.GoodsID, ledgerBuyerLimit, 0, e.Bought
	} else {
		return false
	}
	return true
}

// refusal is the refusal that the row keeps; nil if the request was carried out. line is that of the row's item.
func (r *ledgerRow) refusal(line stock.Line, buyer stock.Buyer) error {
	switch r.Outcome {
	case ledgerSoldOut:
		return &stock.SoldOutError{GoodsID: line.GoodsID, Asked: line.Count, Remaining: r.Remaining}
	case ledgerBuyerLimit:
		return &stock.BuyerLimitError{GoodsID: line.GoodsID, Asked: line.Count, Bought: r.Remaining, Limit: buyer.Limit}
	}
	return nil
}

// rows makes the rows of the order whose first row this is.
func (r ledgerRow) rows(lines []stock.LineReceipt) []ledgerRow {
	rows := make([]ledgerRow, len(lines))
	for i, line := range lines {
		r.Line, r.GoodsID = i, line.GoodsID
		r.done(line.Count, line.Remaining)
		rows[i] = r
	}
	return rows
}

// check refuses a request that is sent again: if the first one has no answer yet, which is a nil row, or if it asked
// for something else.
func (r *ledgerRow) check(entry ledgerRow) error {
	switch {
	case r == nil:
		return fmt.Errorf("%w: %q", stock.ErrInProgress, entry.Key)
	case !slices.Equal(r.Fingerprint, entry.Fingerprint):
		return fmt.Errorf("%w: %q", stock.ErrKeyReused, entry.Key)
	}
	return nil
}

// answer gives the first answer to a deduction that is sent again.
func (r *ledgerRow) answer(req stock.Request) (stock.Receipt, error) {
	if err := r.refusal(stock.Line{GoodsID: req.GoodsID, Count: req.Count}, req.Buyer); err != nil {
		return stock.Receipt{Replayed: true}, err
	}
	return stock.Receipt{Remaining: r.Remaining, Attempts: 1, Replayed: true}, nil
}

// checkAndAnswer is check, and then answer.
func (r *ledgerRow) checkAndAnswer(entry ledgerRow, req stock.Request) (stock.Receipt, error) {
	if err := r.check(entry); err != nil {
		return stock.Receipt{}, err
	}
	return r.answer(req)
}

// answers maps the keys that are taken to the first answer, or to nil while the first request is in progress.
type answers map[string]*ledgerRow

// findAnswers looks up the client keys of requests, all different, on behalf of any replica. An error is a refusal.
func findAnswers(ctx context.Context, in session, entries ...ledgerRow) (answers, error) {
	if len(entries) == 0 {
		return nil, nil
	}
	// Only a locking read sees what others have not committed yet.
	taken, err := selectAnswers(ctx, in, "FOR UPDATE NOWAIT", entries)
	switch {
	case err == nil:
		return taken, nil
	case !isHeld(err):
		return nil, Refusal(err)
	case len(entries) == 1:
		return findCommitted(ctx, in, entries[0])
	}
	// Bisect to find the key that another request holds: most likely it is the only one.
	middle := len(entries) / 2
	taken, err = findAnswers(ctx, in, entries[:middle]...)
	if err != nil {
		return nil, err
	}
	others, err := findAnswers(ctx, in, entries[middle:]...)
	maps.Copy(taken, others)
	return taken, err
}

// findCommitted is findAnswers for a key that another request holds, or held a moment ago. A read that does not lock
// sees its answer, if there is one.
func findCommitted(ctx context.Context, in session, entry ledgerRow) (answers, error) {
	taken, err := selectAnswers(ctx, in, "", []ledgerRow{entry})
	if err != nil {
		return nil, Refusal(err)
	}
	if len(taken) == 0 {
		taken[string(entry.Key)] = nil // in progress
	}
	return taken, nil
}

// takeKey takes the client's key of a new request for a transaction at READ COMMITTED. Until the transaction ends,
// any other request with the key is refused with ErrInProgress, on every replica. If the key is taken already,
// takeKey returns what findAnswers does.
//
// Another request in progress is usually found at once. Only if both have looked for the key before either took it, one
// waits until the other ends, as for any row, and finds its answer.
//
// An error is a refusal, after which the transaction must be rolled back.
func takeKey(ctx context.Context, tx Tx, entry ledgerRow) (answers, error) {
	taken, err := findAnswers(ctx, tx, entry)
	if err != nil || len(taken) > 0 {
		return taken, err
	}
	err = writeRows(ctx, tx, "", entry)
	switch {
	case err == nil:
		return nil, nil
	case isHeld(err):
		return findCommitted(ctx, tx, entry)
	}
	return nil, Refusal(err)
}

const ledgerColumns = "order_key, line, goods_id, count, remaining, outcome, fingerprint"

// selectAnswers reads the first rows of the requests with these keys. It names the index and all of its columns: a
// locking read must not touch any other row, as it would if the server scanned a short table.
func selectAnswers(ctx context.Context, in session, locking string, entries []ledgerRow) (answers, error) {
	keys := make([]any, len(entries))
	for i, entry := range entries {
		keys[i] = entry.Key
	}
	var rows []ledgerRow
	err := in.SelectContext(ctx, &rows, "SELECT "+ledgerColumns+
		" FROM ledger FORCE INDEX (PRIMARY) WHERE order_key IN (?"+strings.Repeat(", ?", len(keys)-1)+
		") AND line = 0 "+locking, keys...)
	found := answers{}
	for _, row := range rows {
		found[string(row.Key)] = &row
	}
	return found, err
}

// lines reads all rows of the order whose first row this is. One statement sees all of them, or none if the order was
// pruned meanwhile. Its key is new again then, so that is an ErrInProgress: the client tries again.
func (r *ledgerRow) lines(ctx context.Context, in session) (rows []ledgerRow, err error) {
	err = in.SelectContext(ctx, &rows, "SELECT "+ledgerColumns+
		" FROM ledger WHERE order_key = ? AND fingerprint = ? ORDER BY line", r.Key, r.Fingerprint)
	if err != nil {
		return nil, Refusal(err)
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("%w, or was pruned just now: %q", stock.ErrInProgress, r.Key)
	}
	return rows, nil
}

// recordRows records the outcomes of requests whose keys this transaction has taken, or that have generated keys. An
// error is a refusal.
func recordRows(ctx context.Context, tx Tx, rows ...ledgerRow) error {
	return Refusal(writeRows(ctx, tx, `ON DUPLICATE KEY UPDATE goods_id = VALUES(goods_id), count = VALUES(count),
		remaining = VALUES(remaining), outcome = VALUES(outcome)`, rows...))
}

// insertRows records the outcomes of requests with new keys. It fails with errKeyTaken if a key is not new. An error
// is a refusal.
func insertRows(ctx context.Context, tx Tx, rows ...ledgerRow) error {
	err := writeRows(ctx, tx, "", rows...)
	if IsDuplicate(err) {
		return fmt.Errorf("%w: %w: %w", stock.ErrBusy, errKeyTaken, err)
	}
	return Refusal(err)
}

func writeRows(ctx context.Context, tx Tx, onDuplicate string, rows ...ledgerRow) error {
	const one = "(?, ?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6))"
	args := make([]any, 0, 7*len(rows))
	for _, r := range rows {
		args = append(args, r.Key, r.Line, r.GoodsID, r.Count, r.Remaining, r.Outcome, r.Fingerprint)
	}
	_, err := tx.ExecContext(ctx, "INSERT INTO ledger ("+ledgerColumns+", created_at) VALUES "+
		one+strings.Repeat(", "+one, len(rows)-1)+" "+onDuplicate, args...)
	return err
}
