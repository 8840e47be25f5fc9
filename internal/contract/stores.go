package contract

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"
)

// Stores are those of this repository's service.
type Stores struct {
	DB     *sql.DB
	Redis  redis.UniversalClient
	Prefix string // of all keys in Redis
}

// Age lets time pass without waiting: it makes the records of keys with a prefix older, and the reservations of some
// items.
func (s Stores) Age(ctx context.Context, by time.Duration, items []int64, keyPrefix string) error {
	micros := by.Microseconds()
	err := s.update(ctx, "UPDATE ledger SET created_at = created_at - INTERVAL ? MICROSECOND "+
		"WHERE order_key LIKE CONCAT(?, '%')", micros, keyPrefix)
	for _, item := range items {
		err = errors.Join(err, s.update(ctx, "UPDATE reservation SET created_at = created_at - INTERVAL ? MICROSECOND, "+
			"expires_at = expires_at - INTERVAL ? MICROSECOND WHERE goods_id = ?", micros, micros, item))
	}
	keys := s.Redis.Scan(ctx, 0, s.Prefix+"stock:key:"+keyPrefix+"*", 1000).Iterator()
	for keys.Next(ctx) {
		left, e := s.Redis.PTTL(ctx, keys.Val()).Result()
		err = errors.Join(err, e, s.Redis.PExpire(ctx, keys.Val(), left-by).Err())
	}
	return errors.Join(err, keys.Err())
}

// update executes a statement, again after a deadlock with a request whose client has left.
func (s Stores) update(ctx context.Context, statement string, args ...any) error {
	for {
		_, err := s.DB.ExecContext(ctx, statement, args...)
		if e, ok := errors.AsType[*mysql.MySQLError](err); !ok || e.Number != 1213 && e.Number != 1205 {
			return err
		}
	}
}

// Pending reports whether sales of some items are on their way from Redis to MySQL.
func (s Stores) Pending(ctx context.Context, items []int64) (bool, error) {
	for _, item := range items {
		entries, err := s.Redis.XLen(ctx, fmt.Sprintf("%sstock:{%d}:sales", s.Prefix, item)).Result()
		if err != nil || entries > 0 {
			return true, err
		}
	}
	return false, nil
}
