package explore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/loadtest/internal/explore/wire"
)

// keysOf lists the keys of Redis among the names of what was touched.
func keysOf(names []string) (keys []string) {
	for _, name := range names {
		if key, ok := strings.CutPrefix(name, "redis:"); ok && !strings.HasPrefix(key, "channel:") {
			keys = append(keys, key)
		}
	}
	return keys
}

// saved is what some keys of Redis were before a write.
type saved struct{ keys []savedKey }

type savedKey struct {
	name  string
	dump  string // empty: there was no such key
	until time.Time
}

// save implements stores.
func (l *lane) save(keys []string) *saved {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	pipe := l.keys.Pipeline()
	dumps, ttls := make([]*redis.StringCmd, len(keys)), make([]*redis.DurationCmd, len(keys))
	for i, key := range keys {
		dumps[i], ttls[i] = pipe.Dump(ctx, key), pipe.PTTL(ctx, key)
	}
	_, _ = pipe.Exec(ctx) // that a key does not exist is an error
	s := &saved{}
	for i, key := range keys {
		k := savedKey{name: key, dump: dumps[i].Val()}
		if ttl := ttls[i].Val(); ttl > 0 {
			k.until = time.Now().Add(ttl)
		}
		s.keys = append(s.keys, k)
	}
	return s
}

// promote implements stores. A replica that has not received the last write differs from the master in the keys of that
// write only, so these get their content of before, and all clients lose their connections, as when it is promoted.
func (l *lane) promote(s *saved) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for _, r := range l.replicas {
		for _, p := range r.proxies {
			if p.Protocol() == wire.Redis {
				p.CutAll()
			}
		}
	}
	pipe := l.keys.TxPipeline()
	for _, k := range s.keys {
		ttl := time.Duration(0)
		if !k.until.IsZero() {
			ttl = max(time.Until(k.until), time.Millisecond)
		}
		if k.dump == "" {
			pipe.Del(ctx, k.name)
		} else {
			pipe.RestoreReplace(ctx, k.name, ttl, k.dump)
		}
	}
	_, _ = pipe.Exec(ctx) // if it fails, nothing is lost, which the schedule shows
}

// entries counts what is on its way from Redis to MySQL.
func (l *lane) entries(ctx context.Context, item int64) int64 {
	return l.keys.XLen(ctx, fmt.Sprintf("stock:{%d}:sales", item)).Val()
}

// holds implements stores.
func (l *lane) holds(item int64) (n int) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	const query = "SELECT COUNT(*) FROM reservation WHERE goods_id = ? AND state = 'held' " +
		"AND expires_at > UTC_TIMESTAMP(6)"
	_ = l.db.QueryRowContext(ctx, query, item).Scan(&n) // if it fails, the fault cannot strike
	return n
}

// endHolds implements stores.
func (l *lane) endHolds(item int64) { _ = l.endReservations(context.Background(), item) }

// endReservations lets the time of the reservations of an item pass that are held, unless somebody has locked them.
// They lasted for whole milliseconds.
func (l *lane) endReservations(ctx context.Context, item int64) error {
	tx, err := l.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	defer tx.Rollback()
	rows, err := tx.QueryContext(ctx, `SELECT id FROM reservation
		WHERE goods_id = ? AND state = 'held' AND expires_at > UTC_TIMESTAMP(6) FOR UPDATE SKIP LOCKED`, item)
	if err != nil {
		return err
	}
	defer rows.Close()
	var ids [][]byte
	for rows.Next() {
		var id []byte
		if err := rows.Scan(&id); err != nil {
			return err
		}
		ids = append(ids, id)
	}
	for _, id := range ids {
		if _, err := tx.ExecContext(ctx, `UPDATE reservation SET expires_at = created_at + INTERVAL
			(TIMESTAMPDIFF(MICROSECOND, created_at, UTC_TIMESTAMP(6)) DIV 1000 * 1000) MICROSECOND
			WHERE id = ?`, id); err != nil {
			return err
		}
	}
	return errors.Join(rows.Err(), tx.Commit())
}

// expiries returns when those reservations of an item end whose time has passed earlier than was asked for, in
// microseconds since 1970, by id.
func (l *lane) expiries(ctx context.Context, item int64) (map[string]int64, error) {
	rows, err := l.db.QueryContext(ctx, `SELECT LOWER(HEX(id)), TIMESTAMPDIFF(MICROSECOND, '1970-01-01', expires_at)
		FROM reservation WHERE goods_id = ? AND expires_at <> created_at + INTERVAL ttl_ms * 1000 MICROSECOND`, item)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	expires := map[string]int64{}
	for rows.Next() {
		var id string
		var at int64
		if err := rows.Scan(&id, &at); err != nil {
			return nil, err
		}
		expires[id] = at
	}
	return expires, rows.Err()
}

// save keeps what a step of Redis is about to change, if a fault may undo it. s.mu is held.
func (s *schedule) save(e *wire.Exchange) {
	if e.Store != "redis" || !slices.ContainsFunc(s.faults, func(f fault) bool { return f.name == Promoted }) {
		return
	}
	keys := keysOf(e.Writes)
	if slices.Contains(e.Writes, everything) {
		for name := range s.touched {
			keys = append(keys, keysOf([]string{name})...)
		}
	}
	if len(keys) > 0 {
		s.saved = s.stores.save(keys)
	}
}
