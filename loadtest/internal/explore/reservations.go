package explore

import (
	"context"
	"database/sql"
)

// reservations counts those of the items whose time is not over; 0 if somebody has locked one of them, whose time
// cannot be over then.
func (l *lane) reservations(items []int64) (n int) {
	ctx, cancel := context.WithTimeout(context.Background(), serverTime)
	defer cancel()
	for _, item := range items {
		var held, free int
		const query = "FROM reservation WHERE goods_id = ? AND state = 'held' AND expires_at > UTC_TIMESTAMP(6)"
		l.fail(l.db.GetContext(ctx, &held, "SELECT COUNT(*) "+query, item))
		var ids [][]byte
		l.fail(l.db.SelectContext(ctx, &ids, "SELECT id "+query+" FOR UPDATE SKIP LOCKED", item))
		if free = len(ids); free < held {
			return 0
		}
		n += held
	}
	return n
}

// reservationIDs lists the ids of the reservations of some items, as literals of SQL.
func (l *lane) reservationIDs(ctx context.Context, items []int64) (all []string, err error) {
	for _, item := range items {
		var ids []string
		const query = "SELECT CONCAT('0x', LOWER(HEX(id))) FROM reservation WHERE goods_id = ?"
		if err := l.db.SelectContext(ctx, &ids, query, item); err != nil {
			return nil, err
		}
		all = append(all, ids...)
	}
	return all, nil
}

// expireReservations ends the time of the reservations of some items.
func (l *lane) expireReservations(ctx context.Context, items []int64) error {
	tx, err := l.db.BeginTxx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for _, item := range items {
		if _, err := tx.ExecContext(ctx, `UPDATE reservation SET created_at = created_at - INTERVAL ? MICROSECOND,
			expires_at = expires_at - INTERVAL ? MICROSECOND WHERE goods_id = ? AND state = 'held'`,
			afterAll.Microseconds(), afterAll.Microseconds(), item); err != nil {
			return err
		}
	}
	return tx.Commit()
}
