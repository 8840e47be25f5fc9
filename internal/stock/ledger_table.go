package stock

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jmoiron/sqlx"
)

// ledgerRow is a row of the table ledger: an order of one goods, or a line of an order of several.
type ledgerRow struct {
	Key         []byte `db:"order_key"`
	Line        int
	GoodsID     int64 `db:"goods_id"`
	Count       int   // units taken, 0 where it was sold out
	Remaining   int64 // units, as answered
	Outcome     ledgerOutcome
	Fingerprint []byte // of what was ordered: 32 bytes
}

type ledgerOutcome string

const (
	ledgerDone    ledgerOutcome = "done"
	ledgerSoldOut ledgerOutcome = "sold-out"
)

// newLedgerOrder is the row of a deduction that is yet to be carried out by a strategy.
func newLedgerOrder(strategy string, req Request) ledgerRow {
	return newLedgerRow(req.Key, req.GoodsID, "deduct", strategy, MySQL, req.GoodsID, req.Count)
}

// newLedgerLines is the first row of an order of several goods that is yet to be carried out by a strategy.
func newLedgerLines(strategy string, req OrderRequest) ledgerRow {
	ordered := []any{"order", strategy, MySQL}
	for _, line := range req.lines {
		ordered = append(ordered, line.GoodsID, line.Count)
	}
	return newLedgerRow(req.Key, req.lines[0].GoodsID, ordered...)
}

func newLedgerRow(clientsKey string, goodsID int64, ordered ...any) ledgerRow {
	key := []byte(clientsKey)
	if clientsKey == "" {
		key = ownKey()
	}
	return ledgerRow{Key: key, GoodsID: goodsID, Outcome: ledgerDone, Fingerprint: fingerprint(ordered...)}
}

func (r *ledgerRow) done(count int, remaining int64) {
	r.Outcome, r.Count, r.Remaining = ledgerDone, count, remaining
}

func (r *ledgerRow) soldOut(goodsID, remaining int64) {
	r.GoodsID, r.Outcome, r.Count, r.Remaining = goodsID, ledgerSoldOut, 0, remaining
}

// ofLines are the rows of the order whose first row this is.
func (r ledgerRow) ofLines(done []LineReceipt) []ledgerRow {
	rows := make([]ledgerRow, len(done))
	for i, line := range done {
		r.Line, r.GoodsID = i, line.GoodsID
		r.done(line.Count, line.Remaining)
		rows[i] = r
	}
	return rows
}

// check refuses an order that is sent again while there is no answer yet, which is nil, and another order with the same key.
func (r *ledgerRow) check(order ledgerRow) error {
	switch {
	case r == nil:
		return fmt.Errorf("%w: %q", ErrInProgress, order.Key)
	case !slices.Equal(r.Fingerprint, order.Fingerprint):
		return fmt.Errorf("%w: %q", ErrKeyReused, order.Key)
	}
	return nil
}

// answer gives the first answer to a deduction that is sent again.
func (r *ledgerRow) answer(req Request) (Receipt, error) {
	if r.Outcome == ledgerSoldOut {
		return Receipt{Replayed: true}, &SoldOutError{req.GoodsID, req.Count, r.Remaining}
	}
	return Receipt{Remaining: r.Remaining, Attempts: 1, Replayed: true}, nil
}

// again is answer where check refuses nothing.
func (r *ledgerRow) again(order ledgerRow, req Request) (Receipt, error) {
	if err := r.check(order); err != nil {
		return Receipt{}, err
	}
	return r.answer(req)
}

// ownKey names an order for which its client gave no key. It begins with a byte that no client can send. Behind it is the
// time, so that such rows are appended to the primary key and not strewn over it.
func ownKey() []byte {
	key := make([]byte, 1, 1+8+8)
	key = binary.BigEndian.AppendUint64(key, uint64(time.Now().UnixNano()))
	key = key[:cap(key)]
	_, _ = rand.Read(key[1+8:]) // it never fails
	return key
}

// fingerprint tells what was ordered from any other order, whatever the operation. Texts must have no spaces.
func fingerprint(order ...any) []byte {
	hash := sha256.Sum256(fmt.Appendln(nil, order...))
	return hash[:]
}

// readCommitted locks no gaps. At REPEATABLE READ, two requests that look for a key that is not there would both lock the
// gap in which it belongs, and each wait for the other to insert it.
var readCommitted = &sql.TxOptions{Isolation: sql.LevelReadCommitted}

// findAnswers looks for the clients' keys of orders, all different. It returns those that are taken, each with the first
// answer to it, or nil where its first request is still in progress, on whichever replica (see again). An error is a refusal.
func findAnswers(ctx context.Context, in selecter, orders ...ledgerRow) (taken map[string]*ledgerRow, err error) {
	if len(orders) == 0 {
		return nil, nil
	}
	// Only a read that locks sees what others have not committed yet.
	taken, err = findKeys(ctx, in, "FOR UPDATE NOWAIT", orders)
	switch {
	case err == nil:
		return taken, nil
	case !heldByAnother(err):
		return nil, refusal(err)
	case len(orders) == 1:
		return committedAnswer(ctx, in, orders[0])
	}
	// Which key is in the way is found by halves: in all likelihood it is the only one.
	middle := len(orders) / 2
	taken, err = findAnswers(ctx, in, orders[:middle]...)
	if err != nil {
		return nil, err
	}
	others, err := findAnswers(ctx, in, orders[middle:]...)
	maps.Copy(taken, others)
	return taken, err
}

// committedAnswer is findAnswers for a key that another request has, or had a moment ago. A read that does not lock sees its
// answer, if there is one.
func committedAnswer(ctx context.Context, in selecter, order ledgerRow) (map[string]*ledgerRow, error) {
	taken, err := findKeys(ctx, in, "", []ledgerRow{order})
	if err != nil {
		return nil, refusal(err)
	}
	if len(taken) == 0 {
		taken[string(order.Key)] = nil // in progress
	}
	return taken, nil
}

// claimKey claims the client's key of a new order for a transaction at READ COMMITTED: until it ends, any other request
// with the key is refused with ErrInProgress, on every replica. If the key is taken, it returns what findAnswers does.
//
// That a request is in progress is found at once, but where both had looked for the key before either claimed it: then one
// waits until the other ends, as for any row, and finds its answer.
//
// An error is a refusal. The transaction must then be rolled back.
func claimKey(ctx context.Context, tx *sqlx.Tx, order ledgerRow) (taken map[string]*ledgerRow, err error) {
	taken, err = findAnswers(ctx, tx, order)
	if err != nil || len(taken) > 0 {
		return taken, err
	}
	err = writeRows(ctx, tx, "", order)
	switch {
	case err == nil:
		return nil, nil
	case heldByAnother(err):
		return committedAnswer(ctx, tx, order)
	}
	return nil, refusal(err)
}

// heldByAnother says that a statement met a row of another request. It has done nothing, and the transaction goes on.
func heldByAnother(err error) bool {
	var server *mysql.MySQLError
	if !errors.As(err, &server) {
		return false
	}
	switch server.Number {
	case erDupEntry, erLockNowait, erLockWaitTimeout:
		return true
	}
	return false
}

// selecter is a connection, or a transaction on it.
type selecter interface {
	SelectContext(ctx context.Context, dest any, query string, args ...any) error
}

// findKeys reads the answers to the keys of orders. It names the index and all of its columns: a locking read must not
// come near another row, as it would if a short table were scanned.
func findKeys(ctx context.Context, in selecter, lock string, orders []ledgerRow) (map[string]*ledgerRow, error) {
	keys := make([]any, len(orders))
	for i, order := range orders {
		keys[i] = order.Key
	}
	var rows []ledgerRow
	err := in.SelectContext(ctx, &rows, "SELECT "+ledgerColumns+" FROM ledger FORCE INDEX (PRIMARY) WHERE order_key IN (?"+
		strings.Repeat(", ?", len(keys)-1)+") AND line = 0 "+lock, keys...)
	found := map[string]*ledgerRow{}
	for _, row := range rows {
		found[string(row.Key)] = &row
	}
	return found, err
}

// lines reads all rows of the order whose first row this is. One statement sees all of them, or none where the order has
// been forgotten since: that is ErrInProgress, since its key is new again.
func (r *ledgerRow) lines(ctx context.Context, db *sqlx.DB) (rows []ledgerRow, err error) {
	err = db.SelectContext(ctx, &rows, "SELECT "+ledgerColumns+" FROM ledger WHERE order_key = ? AND fingerprint = ? ORDER BY line",
		r.Key, r.Fingerprint)
	if err != nil {
		return nil, refusal(err)
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("%w, or was forgotten just now: %q", ErrInProgress, r.Key)
	}
	return rows, nil
}

const ledgerColumns = "order_key, line, goods_id, count, remaining, outcome, fingerprint"

// recordOrders writes down what became of orders: those whose key is claimed, and those with keys of the service's own.
// An error is a refusal.
func recordOrders(ctx context.Context, tx *sqlx.Tx, orders ...ledgerRow) error {
	err := writeRows(ctx, tx, `ON DUPLICATE KEY UPDATE
		goods_id = VALUES(goods_id), count = VALUES(count), remaining = VALUES(remaining), outcome = VALUES(outcome)`, orders...)
	if err != nil {
		return refusal(err)
	}
	return nil
}

// insertRows writes down what became of orders whose keys are new. It fails with errKeyTaken where one is not. An error is a
// refusal.
func insertRows(ctx context.Context, tx *sqlx.Tx, orders ...ledgerRow) error {
	err := writeRows(ctx, tx, "", orders...)
	if server, ok := errors.AsType[*mysql.MySQLError](err); ok && server.Number == erDupEntry {
		return fmt.Errorf("%w: %w: %w", ErrBusy, errKeyTaken, err)
	}
	if err != nil {
		return refusal(err)
	}
	return nil
}

func writeRows(ctx context.Context, tx *sqlx.Tx, onDuplicate string, rows ...ledgerRow) error {
	const one = "(?, ?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6))"
	var args []any
	for _, r := range rows {
		args = append(args, r.Key, r.Line, r.GoodsID, r.Count, r.Remaining, r.Outcome, r.Fingerprint)
	}
	_, err := tx.ExecContext(ctx, "INSERT INTO ledger ("+ledgerColumns+", created_at) VALUES "+one+strings.Repeat(", "+one, len(rows)-1)+" "+onDuplicate, args...)
	return err
}
