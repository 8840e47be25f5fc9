package mysql

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"stock/internal/stock"
)

// ledgerRow is a row of the table ledger: a deduction, or a line of an order, of a request with a key.
type ledgerRow struct {
	Key         []byte `db:"order_key"`
	Line        int
	GoodsID     int64 `db:"goods_id"`
	Count       int   // units deducted, 0 if refused
	Remaining   int64 // units left, as answered
	Outcome     ledgerOutcome
	Fingerprint []byte      // identifies what was asked for: 32 bytes
	Store       stock.Store // that was deducted from
	Cancelled   int         // units
	Reservation []byte      // id of the reservation that a hold made; nil if it made none

	Epoch int64 // of the stock; 0 in a new row if the server must read it
	slot  int   // in which to read it, for slots

	// left is an expression for the units that the deducting statement leaves, from which Remaining is counted. It is
	// empty if they are known before the row is inserted.
	left string
}

type ledgerOutcome string

const (
	ledgerDone      ledgerOutcome = "done"
	ledgerSoldOut   ledgerOutcome = "sold-out"
	ledgerCancelled ledgerOutcome = "cancelled" // nothing was sold
	ledgerHeld      ledgerOutcome = "held"      // nothing was sold: see Reservation
)

// deductionRow is the row of a deduction with a key that is about to be carried out.
func (s Store) deductionRow(req stock.Request) ledgerRow {
	return s.newRow(req.Key, req.GoodsID, req.Fingerprint(s.name))
}

// orderRow is the first row of an order with a key that is about to be carried out.
func (s Store) orderRow(req stock.OrderRequest) ledgerRow {
	return s.newRow(req.Key, req.Lines()[0].GoodsID, req.Fingerprint(s.name))
}

func (s Store) newRow(key string, goodsID int64, fingerprint []byte) ledgerRow {
	return ledgerRow{
		Key: []byte(key), GoodsID: goodsID, Outcome: ledgerDone, Fingerprint: fingerprint, Store: s.name,
		slot: s.slot,
	}
}

// rowsOf is what the ledger records of a deduction that leaves units: nothing if it has no key.
func (s Store) rowsOf(req stock.Request, remaining int64) []ledgerRow {
	if req.Key == "" {
		return nil
	}
	row := s.deductionRow(req)
	row.done(req.Count, remaining)
	return []ledgerRow{row}
}

// rowsOfStatement is rowsOf for a statement that tells by LAST_INSERT_ID what remains, if the store tells it.
func (s Store) rowsOfStatement(req stock.Request) []ledgerRow {
	rows := s.rowsOf(req, 0)
	for i := range rows {
		if s.name.TellsRemaining() {
			rows[i].left = s.left(req.GoodsID)
		}
	}
	return rows
}

// left is an expression for the units that the statement before has left, in the transaction that it belongs to. On
// TiDB, LAST_INSERT_ID() may have the value of an earlier statement: if this one set 0, or was tried again.
func (s Store) left(goodsID int64) string {
	if s.tidb {
		return fmt.Sprintf("(SELECT stock FROM good_stock WHERE goods_id = %d)", goodsID)
	}
	return "CAST(LAST_INSERT_ID() AS SIGNED)"
}

// rowsOfOrder is rowsOf for an order.
func (s Store) rowsOfOrder(req stock.OrderRequest, lines []stock.LineReceipt) []ledgerRow {
	if req.Key == "" {
		return nil
	}
	row := s.orderRow(req)
	rows := make([]ledgerRow, len(lines))
	for i, line := range lines {
		row.Line, row.GoodsID = i, line.GoodsID
		row.done(line.Count, line.Remaining)
		rows[i] = row
	}
	return rows
}

func (r *ledgerRow) done(count int, remaining int64) {
	r.Outcome, r.Count, r.Remaining = ledgerDone, count, remaining
}

// refuse completes the row of a request that ended with err, and reports whether err is a refusal to keep.
func (r *ledgerRow) refuse(err error) bool {
	if e, ok := errors.AsType[*stock.SoldOutError](err); ok {
		r.GoodsID, r.Outcome, r.Count, r.Remaining = e.GoodsID, ledgerSoldOut, 0, e.Remaining
		return true
	}
	return false
}

// cancelled is the error of a request whose key was cancelled.
func cancelled(key []byte) error { return fmt.Errorf("%w: %q", stock.ErrCancelled, key) }

// isTombstone reports whether a key was cancelled before anything was known of it.
func (r *ledgerRow) isTombstone() bool { return r.Outcome == ledgerCancelled && r.GoodsID == 0 }

// refusal is the refusal that the row keeps; nil if the request was carried out. line is that of the row's item.
func (r *ledgerRow) refusal(line stock.Line) error {
	switch r.Outcome {
	case ledgerSoldOut:
		return &stock.SoldOutError{GoodsID: line.GoodsID, Asked: line.Count, Remaining: r.Remaining}
	case ledgerCancelled:
		return cancelled(r.Key)
	}
	return nil
}

// check refuses a request that is sent again: if the first one has no answer yet, which is a nil row, or if it asked
// for something else.
func (r *ledgerRow) check(entry ledgerRow) error {
	switch {
	case r == nil:
		return fmt.Errorf("%w: %q", stock.ErrInProgress, entry.Key)
	case !r.isTombstone() && !slices.Equal(r.Fingerprint, entry.Fingerprint):
		return fmt.Errorf("%w: %q", stock.ErrKeyReused, entry.Key)
	}
	return nil
}

// answer gives the first answer to a deduction that is sent again.
func (r *ledgerRow) answer(req stock.Request) (stock.Receipt, error) {
	if err := r.refusal(stock.Line{GoodsID: req.GoodsID, Count: req.Count}); err != nil {
		return stock.Receipt{Replayed: true}, err
	}
	if r.Cancelled == r.Count {
		return stock.Receipt{Replayed: true}, cancelled(r.Key)
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

// findAnswer looks up a key that another request may have at this moment.
func (c *conn) findAnswer(ctx context.Context, entry ledgerRow) (answers, error) {
	known, err := findAnswers(ctx, c, "", entry)
	if err != nil || len(known) > 0 || c.store.tidb { // on TiDB, a locking read needs a transaction
		return known, err
	}
	// Only a locking read sees what others have not committed yet.
	if known, err = findAnswers(ctx, c, " FOR UPDATE NOWAIT", entry); isHeld(err) {
		return answers{string(entry.Key): nil}, nil
	}
	return known, err
}

// findAnswers looks up the keys of requests. It names the index and all of its columns: a locking read must not touch
// any other row, as it would if the server scanned a short table. An error is a refusal.
func findAnswers(ctx context.Context, in session, locking string, entries ...ledgerRow) (answers, error) {
	keys := make([]any, len(entries))
	for i, entry := range entries {
		keys[i] = entry.Key
	}
	var rows []ledgerRow
	err := in.SelectContext(ctx, &rows, "SELECT "+ledgerColumns+", cancelled "+
		"FROM ledger FORCE INDEX (PRIMARY) WHERE order_key IN "+
		list(len(keys))+" AND line = 0"+locking, keys...)
	known := answers{}
	for _, row := range rows {
		known[string(row.Key)] = &row
	}
	return known, err
}

const ledgerColumns = "order_key, line, goods_id, count, remaining, outcome, fingerprint, store, reservation"

// lines reads all rows of the order whose first row this is. One statement sees all of them, or none if the order was
// pruned meanwhile. Its key is new again then, so that is an ErrInProgress: the client tries again.
func (r *ledgerRow) lines(ctx context.Context, in session) (rows []ledgerRow, err error) {
	err = in.SelectContext(ctx, &rows, "SELECT "+ledgerColumns+
		", cancelled FROM ledger WHERE order_key = ? AND fingerprint = ? ORDER BY line", r.Key, r.Fingerprint)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("%w, or was pruned just now: %q", stock.ErrInProgress, r.Key)
	}
	return rows, nil
}

const insertLedger = "INSERT INTO ledger (" + ledgerColumns + ", epoch, created_at) "

// readEpoch returns a query for the epoch of the stock that the row's sale was made from, and its arguments. SET locks
// the row that it reads, so that must be one that the transaction has locked already.
func (r *ledgerRow) readEpoch() (query string, args []any) {
	switch {
	case r.Epoch != 0:
		return strconv.FormatInt(r.Epoch, 10), nil
	case r.Store == stock.Slots:
		return "SELECT epoch FROM good_slot WHERE goods_id = ? AND slot = ?", []any{r.GoodsID, r.slot}
	case r.Store == stock.Units:
		return unitEpochSQL, []any{r.GoodsID}
	}
	return epochSQL, []any{r.GoodsID}
}

const (
	epochSQL     = "SELECT epoch FROM good_stock WHERE goods_id = ?"
	unitEpochSQL = "SELECT epoch FROM unit_stock WHERE goods_id = ?"
)

// recordAlone returns the statements that insert rows.
func recordAlone(rows []ledgerRow) (query string, args []any) {
	epochs, values, args := recordSQL(rows)
	switch {
	case epochs == "":
	case rows[0].Store == stock.Units: // of one item, which SET would lock after its units: see UnitStore
		query = unitEpochSQL + " INTO @epoch0; "
	default:
		query = "SET " + strings.TrimPrefix(epochs, ", ") + "; "
	}
	return query + insertLedger + "VALUES (" + strings.Join(values, "), (") + ")", args
}

// recordSQL returns the end of a SET that reads the epoch of each item's stock, and the values of rows to insert after
// it. Both take the args. Refusals have no epoch.
func recordSQL(rows []ledgerRow) (epochs string, values []string, args []any) {
	var set strings.Builder
	variable := map[int64]string{}
	for _, r := range rows {
		if r.Count > 0 && variable[r.GoodsID] == "" {
			variable[r.GoodsID] = fmt.Sprintf("@epoch%d", len(variable))
			query, of := r.readEpoch()
			fmt.Fprintf(&set, ", %s = (%s)", variable[r.GoodsID], query)
			args = append(args, of...)
		}
	}
	for _, r := range rows {
		value := "?, ?, ?, ?, "
		if r.left != "" {
			value += r.left + " + "
		}
		value += "?, ?, ?, ?, ?, "
		if r.Count > 0 {
			value += variable[r.GoodsID]
		} else {
			value += "0"
		}
		values = append(values, value+", UTC_TIMESTAMP(6)")
		args = append(args, r.args()...)
	}
	return set.String(), values, args
}

// args are the values of ledgerColumns.
func (r *ledgerRow) args() []any {
	return []any{
		r.Key, r.Line, r.GoodsID, r.Count, r.Remaining, r.Outcome, r.Fingerprint, r.Store, r.Reservation,
	}
}

// record inserts rows of the ledger before COMMIT. It fails with errKeyTaken if a key has an answer. An error is a
// refusal.
func (tx Tx) record(ctx context.Context, rows []ledgerRow) error {
	if len(rows) == 0 {
		return nil
	}
	query, args := recordAlone(rows)
	_, err := tx.ExecContext(ctx, query, args...)
	return orTaken(err)
}

// record inserts rows of the ledger that have no part in a transaction. It fails as exec does.
func (c *conn) record(ctx context.Context, rows []ledgerRow) error {
	if len(rows) == 0 {
		return nil
	}
	query, args := recordAlone(rows)
	_, err := c.exec(ctx, query, args...)
	return orTaken(err)
}

// execAndRecord is exec for a statement that deducts, and records rows of the ledger in the same transaction. It fails
// with errKeyTaken if a key has an answer, and with errNoMatch if the statement matched no row.
func (c *conn) execAndRecord(ctx context.Context, rows []ledgerRow, query string, args ...any) (id int64, err error) {
	if len(rows) == 0 {
		return matched(c.exec(ctx, query, args...))
	}
	epochs, values, of := recordSQL(rows)
	check, insert := expectOneRow+epochs, insertLedger+"VALUES ("+strings.Join(values, "), (")+")"
	if len(rows) == 1 {
		check, insert = countChanged+epochs, insertLedger+"SELECT "+values[0]+" FROM DUAL WHERE @changed = 1"
	}
	all, err := c.together(ctx, query+"; "+check+"; "+insert, slices.Concat(args, of)...)
	switch {
	case otherRowCount(err):
		return 0, errNoMatch
	case err != nil:
		return 0, orTaken(err)
	}
	return matched(all.of(1), nil) // the deduction, after START TRANSACTION
}

// execAndRecord is conn.execAndRecord on a connection of its own.
func (s Store) execAndRecord(
	ctx context.Context, shares []int64, rows []ledgerRow, query string, args ...any,
) (id int64, err error) {
	err = s.use(ctx, shares, func(conn *conn) error {
		id, err = conn.execAndRecord(ctx, rows, query, args...)
		return err
	})
	return id, err
}

// countChanged is like expectOneRow, but lets a statement that changed nothing commit, so that the row is unlocked at
// once.
const countChanged = "SET @changed = ROW_COUNT(), foreign_key_checks = IF(ROW_COUNT() < 0, 2, 1)"
