package contract

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// Clock lets time pass in the stores of this repository's service, instead of waiting: it makes what is kept about some
// items and keys older.
type Clock struct {
	DB     *sql.DB
	Redis  redis.UniversalClient
	Prefix string // of all keys in Redis
}

// Age makes the records of keys with a prefix, and the reservations of some items, older.
func (s Clock) Age(ctx context.Context, by time.Duration, items []int64, keyPrefix string) error {
	micros := by.Microseconds()
	_, err := s.DB.ExecContext(ctx, "UPDATE ledger SET created_at = created_at - INTERVAL ? MICROSECOND "+
		"WHERE order_key LIKE CONCAT(?, '%')", micros, keyPrefix)
	for _, item := range items {
		_, e := s.DB.ExecContext(ctx, "UPDATE reservation SET created_at = created_at - INTERVAL ? MICROSECOND, "+
			"expires_at = expires_at - INTERVAL ? MICROSECOND WHERE goods_id = ?", micros, micros, item)
		err = errors.Join(err, e)
	}
	keys := s.Redis.Scan(ctx, 0, s.Prefix+"stock:key:"+keyPrefix+"*", 1000).Iterator()
	for keys.Next(ctx) {
		left, e := s.Redis.PTTL(ctx, keys.Val()).Result()
		err = errors.Join(err, e, s.Redis.PExpire(ctx, keys.Val(), left-by).Err())
	}
	return errors.Join(err, keys.Err())
}
