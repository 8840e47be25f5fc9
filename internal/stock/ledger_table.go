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

// claimKeys claims the clients' keys of new orders, all different, for a transaction at READ COMMITTED: until it ends, any
// other request with such a key is refused with ErrInProgress, on every replica. It returns the keys that are taken, each
// with the first answer to it, or nil where its first request is still in progress. Those are not claimed (see again). An
// order with a key of the service's own needs no claim.
//
// That a request is in progress is found at once, but where both had looked for the key before either claimed it: then one
// waits until the other ends, as for any row, and finds its answer.
//
// An error is a refusal. The transaction must then be rolled back.
func claimKeys(ctx context.Context, tx *sqlx.Tx, orders ...ledgerRow) (taken map[string]*ledgerRow, err error) {
	// In the order of the keys: two batches that have two of them in common must not wait for each other.
	orders = slices.SortedFunc(slices.Values(orders), func(a, b ledgerRow) int { return slices.Compare(a.Key, b.Key) })
	// Only a read that locks sees what others have not committed yet.
	taken, err = findKeys(ctx, tx, "FOR UPDATE NOWAIT", orders)
	if err == nil {
		free := slices.DeleteFunc(slices.Clone(orders), func(order ledgerRow) bool { return taken[string(order.Key)] != nil })
		err = writeRows(ctx, tx, "", free)
	}
	switch {
	case err == nil:
		return taken, nil
	case !heldByAnother(err):
		return nil, refusal(err)
	case len(orders) > 1:
		return claimHalves(ctx, tx, orders)
	}
	// Another request has the key, or had it a moment ago. A read that does not lock sees its answer, if there is one.
	if taken, err = findKeys(ctx, tx, "", orders); err != nil {
		return nil, refusal(err)
	}
	if len(taken) == 0 {
		taken[string(orders[0].Key)] = nil // in progress
	}
	return taken, nil
}

// claimHalves looks for the key that is in the way by halves: it is in all likelihood the only one of its batch.
func claimHalves(ctx context.Context, tx *sqlx.Tx, orders []ledgerRow) (taken map[string]*ledgerRow, err error) {
	middle := len(orders) / 2
	taken, err = claimKeys(ctx, tx, orders[:middle]...)
	if err != nil {
		return nil, err
	}
	others, err := claimKeys(ctx, tx, orders[middle:]...)
	maps.Copy(taken, others)
	return taken, err
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

// findKeys reads the answers to the keys of orders. It names the index and all of its columns: a locking read must not
// come near another row, as it would if a short table were scanned.
func findKeys(ctx context.Context, tx *sqlx.Tx, lock string, orders []ledgerRow) (map[string]*ledgerRow, error) {
	keys := make([]any, len(orders))
	for i, order := range orders {
		keys[i] = order.Key
	}
	var rows []ledgerRow
	err := tx.SelectContext(ctx, &rows, "SELECT "+ledgerColumns+" FROM ledger FORCE INDEX (PRIMARY) WHERE order_key IN (?"+
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

// recordOrders writes down what became of orders: those whose keys are claimed, and those with keys of the service's own.
// An error is a refusal.
func recordOrders(ctx context.Context, tx *sqlx.Tx, orders ...ledgerRow) error {
	err := writeRows(ctx, tx, `ON DUPLICATE KEY UPDATE
		goods_id = VALUES(goods_id), count = VALUES(count), remaining = VALUES(remaining), outcome = VALUES(outcome)`, orders)
	if err != nil {
		return refusal(err)
	}
	return nil
}

func writeRows(ctx context.Context, tx *sqlx.Tx, onDuplicate string, rows []ledgerRow) error {
	if len(rows) == 0 {
		return nil
	}
	const one = "(?, ?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6))"
	var args []any
	for _, r := range rows {
		args = append(args, r.Key, r.Line, r.GoodsID, r.Count, r.Remaining, r.Outcome, r.Fingerprint)
	}
	_, err := tx.ExecContext(ctx, "INSERT INTO ledger ("+ledgerColumns+", created_at) VALUES "+one+strings.Repeat(", "+one, len(rows)-1)+" "+onDuplicate, args...)
	return err
}
