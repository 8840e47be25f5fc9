package explore

import (
	"context"
	"database/sql"
	"strings"

	"stock/loadtest/internal/history"
	"stock/loadtest/internal/traffic"
)

// reservations counts those of an item whose time is not over.
func (l *lane) reservations(item int64) (n int) {
	ctx, cancel := context.WithTimeout(context.Background(), serverTime)
	defer cancel()
	const query = "SELECT COUNT(*) FROM reservation WHERE goods_id = ? AND state = 'held' " +
		"AND expires_at > UTC_TIMESTAMP(6)"
	l.fail(l.db.GetContext(ctx, &n, query, item))
	return n
}

// expireReservations expires the held reservations of an item that nobody has locked. The new end is a whole number of
// milliseconds after the beginning.
func (l *lane) expireReservations(ctx context.Context, item int64) error {
	tx, err := l.db.BeginTxx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	defer tx.Rollback()
	var ids [][]byte
	if err := tx.SelectContext(ctx, &ids, `SELECT id FROM reservation
		WHERE goods_id = ? AND state = 'held' AND expires_at > UTC_TIMESTAMP(6) FOR UPDATE SKIP LOCKED`, item); err != nil {
		return err
	}
	for _, id := range ids {
		if _, err := tx.ExecContext(ctx, `UPDATE reservation SET expires_at = created_at + INTERVAL
			(TIMESTAMPDIFF(MICROSECOND, created_at, UTC_TIMESTAMP(6)) DIV 1000 * 1000) MICROSECOND
			WHERE id = ?`, id); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// expiries returns when those reservations of an item end whose time has passed earlier than was asked for, in
// microseconds since 1970, by id.
func (l *lane) expiries(ctx context.Context, item int64) (map[string]int64, error) {
	var rows []struct {
		ID string
		At int64
	}
	err := l.db.SelectContext(ctx, &rows, `SELECT LOWER(HEX(id)) id,
		TIMESTAMPDIFF(MICROSECOND, '1970-01-01', expires_at) at
		FROM reservation WHERE goods_id = ? AND expires_at <> created_at + INTERVAL ttl_ms * 1000 MICROSECOND`, item)
	expires := map[string]int64{}
	for _, row := range rows {
		expires[row.ID] = row.At
	}
	return expires, err
}

// endReservations asks what became of each reservation, and then lets the time of all pass: the units of those that
// nobody has confirmed must be back. A hold that finds too few units takes them back at once.
func (x *session) endReservations(ctx context.Context, item int64, told []answers) error {
	desk := x.lane.replicas[x.lane.late()].URL
	load := traffic.Load{Strategy: x.strategy.Name, Store: x.store, Timeout: clientTimeout}
	asked := map[string]bool{}
	for i := range told {
		for _, c := range told[i].ops {
			if c.Reservation == "" || asked[c.Reservation] {
				continue
			}
			asked[c.Reservation] = true
			state, err := traffic.SendOne(ctx, desk, load, traffic.About(c, history.Inspect, false))
			if err != nil {
				return err
			}
			told[i].ops = append(told[i].ops, state)
		}
	}
	expires, err := x.lane.expiries(ctx, item)
	if err != nil {
		return err
	}
	for i := range told {
		for j := range told[i].ops {
			told[i].ops[j] = endedEarlier(told[i].ops[j], expires)
		}
	}
	if err := x.lane.expireReservations(ctx, item); err != nil {
		return err
	}
	tooMany := history.Op{
		Kind: history.Hold, Name: requestPrefix(item) + "-all", GoodsID: item, Count: 1000, TTLMS: holdTime,
	}
	_, err = traffic.SendOne(ctx, desk, load, tooMany)
	return err
}

// endedEarlier returns a call with the time at which its reservation has ended, if a fault has let the time pass.
func endedEarlier(c history.Op, expires map[string]int64) history.Op {
	ends, found := expires[strings.ReplaceAll(c.Reservation, "-", "")]
	if !found || c.Outcome != history.Done || ends > c.ExpiresUS {
		return c
	}
	c.ExpiresUS, c.TTLMS = ends, (ends-c.CreatedUS)/1000
	return c
}
