package mysql

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"stock/internal/stock"
	"stock/internal/stock/batching"
	"stock/internal/stock/retry"
)

// hold is what a hold asks for in addition to a stock.Request, and what becomes of it.
type hold struct {
	ttl      time.Duration
	row      *reservationRow
	replayed bool
}

// Hold implements stock.Reserver. A request with work to do, or that waits less than others, does not join a batch.
func (s *reserve) Hold(ctx context.Context, req stock.HoldRequest) (stock.Reservation, stock.Receipt, error) {
	row, receipt, err := s.hold(ctx, req)
	return row.reservation(), receipt, err
}

func (s *reserve) hold(
	ctx context.Context, req stock.HoldRequest,
) (row *reservationRow, receipt stock.Receipt, err error) {
	h := &hold{ttl: req.TTL}
	limit, limited := stock.WaitLimit(ctx)
	if limited && limit < s.store.wait || req.Hold > 0 {
		receipt, err = s.holdAlone(ctx, req.Request, h)
	} else {
		receipt, err = s.Do(ctx, req.Request, h)
	}
	if req.Key != "" && IsBusy(err) { // maybe because of a request with this key that has not committed yet
		entry := s.store.newRow(req.Key, req.GoodsID, req.Fingerprint(s.store.name))
		if _, why := s.store.settle(ctx, entry, err); why != nil {
			err = why
		}
	}
	switch {
	case !h.replayed:
		return h.row, receipt, err
	case err != nil:
		return nil, stock.Receipt{Replayed: true}, err
	}
	row, err = s.endLapsed(ctx, h.row)
	return row, stock.Receipt{Attempts: 1, Replayed: true}, err
}

// holdAlone is a hold by itself. It tries again if the server rolled it back because of a conflict.
func (s *reserve) holdAlone(ctx context.Context, req stock.Request, h *hold) (stock.Receipt, error) {
	try := s.holdAtOnce
	if req.Hold > 0 {
		try = s.holdWithWork
	}
	section, attempts := stock.Arrive(), 0
	member := &batching.Member{Request: req, Detail: h}
	err := retry.While(ctx, s.store.wait, overtaken, func() error {
		attempts++
		return try(ctx, member, &section)
	})
	if err != nil {
		return stock.Receipt{}, err
	}
	return section.Receipt(member.Remaining, attempts), nil
}

// holdAtOnce decides on a hold as on a batch of one.
func (s *reserve) holdAtOnce(ctx context.Context, m *batching.Member, section *stock.Section) error {
	return s.store.use(ctx, []int64{m.GoodsID}, func(conn *conn) error {
		if err := conn.endBefore(ctx, conn.Conn); err != nil {
			return err
		}
		running, cancel := s.store.untilDeadline(ctx)
		defer cancel()
		b := &batching.Batch{GoodsID: m.GoodsID, Undecided: []*batching.Member{m}}
		err := cmp.Or(s.tryHolds(running, conn, b), m.Err)
		section.Enter()
		return err
	})
}

// holdWithWork is a hold with work to do, in a transaction that locks the item's row.
func (s *reserve) holdWithWork(ctx context.Context, m *batching.Member, section *stock.Section) error {
	var taken []reservationRow
	err := s.store.InTx(ctx, []int64{ShareOf(m.Request)}, ReadCommitted, func(tx Tx) error {
		fresh, _, err := s.store.findHolds(ctx, tx, []*batching.Member{m})
		if err != nil || len(fresh) == 0 {
			return err
		}
		var present stockForHold
		if present, taken, err = holdWhatFits(ctx, tx, m.GoodsID, fresh, section); err != nil {
			return err
		}
		if m.Err == nil {
			if err := stock.Work(ctx, m.Request.Hold); err != nil {
				return err
			}
			section.Leave()
		}
		return recordHolds(ctx, tx, fresh, present.latest(m.Request.Hold))
	})
	switch {
	case err == nil:
		s.count(stock.Expired, taken)
		return m.Err
	case errors.Is(err, stock.ErrUnknown) && knowsRefusal(m, err):
		return m.Err
	}
	return err
}

// tryHolds decides on a batch of holds of one item.
func (s *reserve) tryHolds(ctx context.Context, conn *conn, b *batching.Batch) error {
	fresh, repeats, err := s.store.findHolds(ctx, conn, b.Undecided)
	if err != nil {
		return err
	}
	// The others have the answer of an earlier hold. An error from here on is not theirs.
	b.Undecided = slices.Concat(fresh, slices.Collect(maps.Keys(repeats)))
	if len(fresh) == 0 {
		return nil
	}
	if err := s.decideHolds(ctx, conn, b.GoodsID, fresh); err != nil {
		if errors.Is(err, stock.ErrUnknown) {
			b.Undecided = slices.DeleteFunc(b.Undecided, func(m *batching.Member) bool { return knowsRefusal(m, err) })
		}
		return err
	}
	for m, first := range repeats {
		if first.Err != nil && !errors.Is(first.Err, stock.ErrSoldOut) {
			m.Refuse(first.Err)
			continue
		}
		row := s.store.rowOfHold(first)
		s.store.replay(m, &row, first.Detail.(*hold).row)
	}
	return nil
}

// knowsRefusal reports whether a hold was refused as sold out in a transaction that may have been committed or not: it
// holds nothing in either case.
func knowsRefusal(m *batching.Member, lost error) bool {
	known := errors.Is(m.Err, stock.ErrSoldOut)
	if known {
		refuseUnrecorded([]*batching.Member{m}, lost)
	}
	return known
}

// entryOfHold is the row of a hold with a key that is about to be carried out.
func (s Store) entryOfHold(m *batching.Member) ledgerRow {
	asked := stock.HoldRequest{Request: m.Request, TTL: m.Detail.(*hold).ttl}
	return s.newRow(m.Key, m.GoodsID, asked.Fingerprint(s.name))
}

// rowOfHold is what the ledger records of a hold that was granted or refused.
func (s Store) rowOfHold(m *batching.Member) ledgerRow {
	row := s.entryOfHold(m)
	if !row.refuse(m.Err) {
		row.Outcome, row.Reservation = ledgerHeld, m.Detail.(*hold).row.ID
	}
	return row
}

// rowsOfHolds is rowOfHold for those members that have keys.
func (s Store) rowsOfHolds(members []*batching.Member) (rows []ledgerRow) {
	for _, m := range members {
		if m.Key != "" {
			rows = append(rows, s.rowOfHold(m))
		}
	}
	return rows
}

// findHolds looks up the keys of holds, and answers each hold whose key is taken as the row that has it says. Of the
// others, fresh has those without a key and the first of each key; repeats maps each further one to the first with
// its key.
func (s Store) findHolds(
	ctx context.Context, in session, members []*batching.Member,
) (fresh []*batching.Member, repeats map[*batching.Member]*batching.Member, err error) {
	known, held, err := s.findKeysOfHolds(ctx, in, members)
	if err != nil {
		return nil, nil, err
	}
	firsts := map[string]*batching.Member{}
	repeats = map[*batching.Member]*batching.Member{}
	for _, m := range members {
		switch row, first := known[m.Key], firsts[m.Key]; {
		case m.Key != "" && row != nil:
			s.replay(m, row, held[m.Key])
		case m.Key != "" && first != nil:
			repeats[m] = first
		default:
			firsts[m.Key] = m
			fresh = append(fresh, m)
		}
	}
	return fresh, repeats, nil
}

// findKeysOfHolds reads the rows that have the keys of holds, and the reservations of these keys.
func (s Store) findKeysOfHolds(
	ctx context.Context, in session, members []*batching.Member,
) (known answers, held map[string]*reservationRow, err error) {
	var entries []ledgerRow
	for _, m := range members {
		if m.Key != "" {
			entries = append(entries, s.entryOfHold(m))
		}
	}
	if len(entries) == 0 {
		return nil, nil, nil
	}
	if known, err = findAnswers(ctx, in, "", entries...); err != nil {
		return nil, nil, err
	}
	ids := map[string]stock.ReservationID{}
	for key, row := range known {
		if row.Outcome == ledgerHeld {
			ids[key] = stock.ReservationID(row.Reservation)
		}
	}
	if len(ids) == 0 {
		return known, nil, nil
	}
	found, err := findReservations(ctx, in, slices.Collect(maps.Values(ids))...)
	held = map[string]*reservationRow{}
	for key, id := range ids {
		held[key] = found[id]
	}
	return known, held, err
}

// replay answers a hold with what became of an earlier request with its key, if that asked for the same.
func (s Store) replay(m *batching.Member, first *ledgerRow, row *reservationRow) {
	if err := first.check(s.entryOfHold(m)); err != nil {
		m.Refuse(err)
		return
	}
	err := first.refusal(stock.Line{GoodsID: m.GoodsID, Count: m.Count})
	if err == nil && row == nil {
		m.Refuse(fmt.Errorf("%w, or was pruned just now: %q", stock.ErrInProgress, m.Key))
		return
	}
	h := m.Detail.(*hold)
	h.row, h.replayed = row, true
	if err != nil {
		m.Refuse(err)
		return
	}
	m.Grant(0)
}

// decideHolds needs one INSERT and one UPDATE if there is enough for all, as there is until the item runs out. If there
// is too little for any, and nothing has expired, it refuses all and writes nothing. Otherwise it takes back what has
// expired and grants what fits, under the lock of the item's row.
func (s *reserve) decideHolds(ctx context.Context, conn *conn, goodsID int64, members []*batching.Member) error {
	if decided, err := holdTogether(ctx, conn, goodsID, members); err != nil || decided {
		return err
	}
	var taken []reservationRow
	err := conn.inTx(ctx, ReadCommitted, func(tx Tx) (err error) {
		var present stockForHold
		if present, taken, err = holdWhatFits(ctx, tx, goodsID, members, new(stock.Section)); err != nil {
			return err
		}
		return recordHolds(ctx, tx, members, present.latest(0))
	})
	if err == nil {
		s.count(stock.Expired, taken)
	}
	return err
}

// holdTogether grants all members, or refuses all, or decides nothing. It sends its transaction in one message, so that
// the item is not blocked if the replica is stopped. It adds the reservations before it locks the item's row; nobody
// else waits for them. It adds nothing and decides nothing if the units were sold meanwhile, or if the waits for the
// item's row and for keys have cost the reservations more than holdSlack of their time.
func holdTogether(
	ctx context.Context, conn *conn, goodsID int64, members []*batching.Member,
) (decided bool, err error) {
	present, err := readForHold(ctx, conn, goodsID)
	if err != nil {
		return false, err
	}
	asked := batching.Total(members)
	if present.Units < asked {
		return refuseHolds(ctx, conn, present, members)
	}
	batching.Allot(members, present.Units)
	query, args := insertSQL(present.rows(members))
	query += "; " + selectSQL + forUpdateSQL(ctx) + "; " + deductSQL + " AND epoch = ?; " + expectOneRow
	args = append(args, goodsID, asked, goodsID, asked, present.Epoch)
	after := 3 // statements after the deduction: expectOneRow, expectBefore and COMMIT
	if keyed := conn.store.rowsOfHolds(members); len(keyed) > 0 {
		insert, of := recordAlone(keyed)
		query, args, after = query+"; "+insert, append(args, of...), after+1
	}
	all, err := conn.together(ctx, query+"; "+expectBefore, append(args, present.latest(0))...)
	switch {
	case otherRowCount(err):
		return false, nil
	case err != nil:
		return false, orTaken(err)
	}
	deduction := all.of(len(all.ids) - 1 - after)
	batching.Allot(members, deduction.ID+asked)
	return true, nil
}

// stockForHold is the stock of an item, and the time at which reservations of it begin.
type stockForHold struct {
	GoodsID int64 `db:"goods_id"`
	Units   int64
	Epoch   int64
	Now     int64 // microseconds since 1970
}

func readForHold(ctx context.Context, in session, goodsID int64) (present stockForHold, err error) {
	err = in.GetContext(ctx, &present, "SELECT goods_id, stock AS units, epoch, "+
		sinceEpoch+"UTC_TIMESTAMP(6)) AS now FROM good_stock WHERE goods_id = ?", goodsID)
	return present, orMissing(goodsID, err)
}

// latest is the time until which reservations must be made, in addition to the time for work while they are made.
func (p stockForHold) latest(work time.Duration) string {
	return datetime(p.Now + (holdSlack + work).Microseconds())
}

// rows makes the reservations of members that were granted.
func (p stockForHold) rows(members []*batching.Member) []*reservationRow {
	rows := make([]*reservationRow, 0, len(members))
	for _, m := range members {
		if m.Err != nil {
			continue
		}
		h, id := m.Detail.(*hold), stock.NewReservationID()
		h.row = &reservationRow{
			ID:      id[:],
			GoodsID: p.GoodsID,
			Count:   m.Count,
			TTL:     h.ttl.Milliseconds(),
			Epoch:   p.Epoch,
			State:   stock.Held,
			Created: p.Now,
			Expires: p.Now + h.ttl.Microseconds(),
		}
		if m.Key != "" {
			h.row.Key = []byte(m.Key)
		}
		rows = append(rows, h.row)
	}
	return rows
}

// readLapsed reads the stock of an item and whether a reservation of it has expired, in one statement, so that both are
// of one moment.
func readLapsed(ctx context.Context, in session, goodsID int64) (units int64, lapsed bool, err error) {
	var present struct {
		Units  int64
		Lapsed bool
	}
	err = in.GetContext(ctx, &present, "SELECT stock AS units, EXISTS (SELECT 1 FROM reservation "+
		"FORCE INDEX (reservation_state) WHERE state = 'held' AND "+hasLapsed+" AND goods_id = ?) AS lapsed "+
		"FROM good_stock WHERE goods_id = ?", goodsID, goodsID)
	return present.Units, present.Lapsed, orMissing(goodsID, err)
}

// refuseHolds refuses all members if the stock covers none of them and no reservation of the item has expired. Then it
// keeps the refusals of members with keys.
func refuseHolds(
	ctx context.Context, conn *conn, present stockForHold, members []*batching.Member,
) (decided bool, err error) {
	units, lapsed, err := readLapsed(ctx, conn, present.GoodsID)
	if err != nil || lapsed || batching.Allot(members, units) < units {
		return false, err
	}
	err = recordRefusals(ctx, conn, members, conn.store.rowsOfHolds(members))
	return err == nil, err
}

// holdWhatFits grants some of the members under the lock of the item's row, so that it decides by the current stock. If
// that is too little for all, it takes back the reservations that have expired, and returns them. The caller must then
// record the keys.
func holdWhatFits(
	ctx context.Context, tx Tx, goodsID int64, members []*batching.Member, section *stock.Section,
) (present stockForHold, taken []reservationRow, err error) {
	units, err := tx.readForUpdate(ctx, goodsID)
	if err != nil {
		return present, nil, err
	}
	section.Enter()
	if present, err = readForHold(ctx, tx, goodsID); err != nil { // the time after the wait for the lock
		return present, nil, err
	}
	for asked := batching.Total(members); units < asked; {
		more, err := takeBack(ctx, tx, []int64{goodsID})
		if err != nil {
			return present, nil, err
		}
		if len(more) == 0 {
			break
		}
		for _, r := range more {
			if r.Epoch == present.Epoch {
				units += int64(r.Count)
			}
		}
		taken = append(taken, more...)
	}
	if left := batching.Allot(members, units); left != present.Units {
		if err := tx.Write(ctx, goodsID, left); err != nil {
			return present, nil, err
		}
	}
	return present, taken, insertReservations(ctx, tx, present.rows(members))
}

// recordHolds records the keys of holds before COMMIT. It fails with ErrChanged if the wait for a key has lasted until
// the latest time for the reservations.
func recordHolds(ctx context.Context, tx Tx, members []*batching.Member, latest string) error {
	rows := tx.conn.store.rowsOfHolds(members)
	if len(rows) == 0 {
		return nil
	}
	if err := tx.record(ctx, rows); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, expectBefore, latest)
	if otherRowCount(err) {
		return fmt.Errorf("%w: the reservation is late", stock.ErrChanged)
	}
	return err
}
