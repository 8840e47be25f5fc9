package mysql

import (
	"context"
	"database/sql"
	"slices"
	"strings"
	"time"

	"stock/internal/stock"
)

// reservationRow is a row of the table reservation. Times are microseconds since 1970, by the server's clock.
type reservationRow struct {
	ID      []byte
	Key     []byte // in the ledger; nil without a key
	GoodsID int64  `db:"goods_id"`
	Count   int
	TTL     int64 `db:"ttl_ms"`
	Epoch   int64
	State   stock.ReservationState
	Created int64
	Expires int64
	Ended   sql.NullInt64
	Lapsed  bool // its time has passed
}

// reservation is the row for clients: a held reservation whose time has passed counts as expired. Without a row, it is
// empty.
func (r *reservationRow) reservation() stock.Reservation {
	if r == nil {
		return stock.Reservation{}
	}
	held := stock.Reservation{
		ID:      stock.ReservationID(r.ID),
		State:   r.State,
		GoodsID: r.GoodsID,
		Count:   r.Count,
		Created: time.UnixMicro(r.Created).UTC(),
		Expires: time.UnixMicro(r.Expires).UTC(),
	}
	if r.State == stock.Held && r.Lapsed {
		held.State = stock.Expired
	}
	if r.Ended.Valid {
		held.Ended = time.UnixMicro(r.Ended.Int64).UTC()
	}
	return held
}

const (
	// sinceEpoch and datetime convert between a DATETIME in UTC and microseconds. Neither depends on the time zone of
	// the session, nor on how the driver reads times.
	sinceEpoch     = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', "
	datetimeLayout = "2006-01-02 15:04:05.000000"

	hasLapsed = "expires_at <= UTC_TIMESTAMP(6)"

	selectReservations = "SELECT id, goods_id, count, ttl_ms, epoch, state, " +
		sinceEpoch + "created_at) AS created, " + sinceEpoch + "expires_at) AS expires, " +
		sinceEpoch + "ended_at) AS ended, " + hasLapsed + " AS lapsed FROM reservation "

	// The primary key is named so that the statement locks these rows only, in the order of their ids, whatever else
	// the server would choose.
	byID = "FORCE INDEX (PRIMARY) WHERE id IN "
)

// datetime is a time in microseconds as a parameter of a statement.
func datetime(micros int64) string { return time.UnixMicro(micros).UTC().Format(datetimeLayout) }

// findReservations reads reservations by id. Those that do not exist are missing in the result.
func findReservations(
	ctx context.Context, in session, ids ...stock.ReservationID,
) (map[stock.ReservationID]*reservationRow, error) {
	var rows []reservationRow
	err := in.SelectContext(ctx, &rows, selectReservations+byID+list(len(ids)), idArgs(ids)...)
	found := make(map[stock.ReservationID]*reservationRow, len(rows))
	for i := range rows {
		found[stock.ReservationID(rows[i].ID)] = &rows[i]
	}
	return found, err
}

// insertReservations adds reservations that are held from now on. An error is a refusal.
func insertReservations(ctx context.Context, in session, rows []*reservationRow) error {
	if len(rows) == 0 {
		return nil
	}
	query, args := insertSQL(rows)
	_, err := in.ExecContext(ctx, query, args...)
	return err
}

// insertSQL returns the statement of insertReservations.
func insertSQL(rows []*reservationRow) (query string, args []any) {
	const one = "(?, ?, ?, ?, ?, ?, ?, ?, ?)"
	args = make([]any, 0, 9*len(rows)+8) // holdTogether adds as many
	for _, r := range rows {
		args = append(args, r.ID, r.Key, r.GoodsID, r.Count, r.TTL, r.Epoch, r.State, datetime(r.Created),
			datetime(r.Expires))
	}
	return "INSERT INTO reservation " +
		"(id, order_key, goods_id, count, ttl_ms, epoch, state, created_at, expires_at) VALUES " +
		one + strings.Repeat(", "+one, len(rows)-1), args
}

// endHeld ends those of the given reservations that are held and fulfil the condition, and returns them. The
// transaction must have locked the rows of their items, and then gives their units back. An error is a refusal.
func endHeld(
	ctx context.Context, tx Tx, ids []stock.ReservationID, state stock.ReservationState, condition string,
) ([]reservationRow, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	var rows []reservationRow
	err := tx.SelectContext(ctx, &rows, "SELECT id, goods_id, count, epoch, "+
		sinceEpoch+"expires_at) AS expires, "+sinceEpoch+"UTC_TIMESTAMP(6)) AS ended FROM reservation "+byID+
		list(len(ids))+" AND state = 'held' AND "+condition+" FOR UPDATE", idArgs(ids)...)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	args := []any{state, datetime(rows[0].Ended.Int64)}
	for _, r := range rows {
		args = append(args, r.ID)
	}
	_, err = tx.ExecContext(ctx, "UPDATE reservation FORCE INDEX (PRIMARY) SET state = ?, ended_at = ? "+
		"WHERE id IN "+list(len(rows)), args...)
	return rows, err
}

// lapsedLimit bounds how many reservations one transaction takes back.
const lapsedLimit = 500

// takeBack ends reservations of these items whose time has passed, up to lapsedLimit, and returns them. The transaction
// is at READ COMMITTED, and has locked the rows of the items: nobody else can end these reservations meanwhile, but for
// a confirmation that was sent in time.
func takeBack(ctx context.Context, tx Tx, items []int64) ([]reservationRow, error) {
	var found [][]byte
	err := tx.SelectContext(ctx, &found, "SELECT id FROM reservation FORCE INDEX (reservation_state) "+
		"WHERE state = 'held' AND "+hasLapsed+" AND goods_id IN "+list(len(items))+" ORDER BY expires_at LIMIT ?",
		append(params(items), lapsedLimit)...)
	if err != nil {
		return nil, err
	}
	ids := make([]stock.ReservationID, len(found))
	for i, id := range found {
		ids[i] = stock.ReservationID(id)
	}
	return endHeld(ctx, tx, ids, stock.Expired, hasLapsed)
}

// LockItems locks the rows of items, in ascending order, and returns the epochs of their stocks. An item that does not
// exist is missing in the result. The index is named because a scan of a small table would lock other rows too. With
// " NOWAIT" it fails with ErrBusy if a row is locked.
func LockItems(ctx context.Context, tx Tx, items []int64, nowait string) (epochs map[int64]int64, err error) {
	var rows []struct {
		GoodsID int64 `db:"goods_id"`
		Epoch   int64
	}
	err = tx.SelectContext(ctx, &rows, "SELECT goods_id, epoch FROM good_stock FORCE INDEX (good_stock_goods_id) "+
		"WHERE goods_id IN "+list(len(items))+" ORDER BY goods_id FOR UPDATE"+nowait, params(items)...)
	epochs = make(map[int64]int64, len(rows))
	for _, r := range rows {
		epochs[r.GoodsID] = r.Epoch
	}
	return epochs, err
}

// giveBack adds the units of ended reservations to the stocks of their items, whose rows are locked. Units of an older
// epoch are not added: they were taken from a stock that has been replaced since.
func giveBack(ctx context.Context, tx Tx, ended []reservationRow, epochs map[int64]int64) error {
	units := map[int64]int64{}
	for _, r := range ended {
		if epoch, exists := epochs[r.GoodsID]; exists && epoch == r.Epoch {
			units[r.GoodsID] += int64(r.Count)
		}
	}
	if len(units) == 0 {
		return nil
	}
	var cases, items []any
	for id, n := range units {
		cases, items = append(cases, id, n), append(items, id)
	}
	_, err := tx.ExecContext(ctx, "UPDATE good_stock SET version = version + 1, stock = stock + CASE goods_id"+
		strings.Repeat(" WHEN ? THEN ?", len(units))+" END WHERE goods_id IN "+list(len(units)),
		slices.Concat(cases, items)...)
	return err
}

func idArgs(ids []stock.ReservationID) []any {
	args := make([]any, len(ids))
	for i := range ids {
		args[i] = ids[i][:]
	}
	return args
}
