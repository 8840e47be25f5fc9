package fault

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/internal/tcpproxy"
)

// shop is what practices with a lock share: a lock in Redis, and read-modify-write in MySQL, on connections of their
// own.
type shop struct {
	db    *sql.DB
	redis *redis.Client
	key   string // of the lock
	item  int64
}

// Read-modify-write in MySQL.
const (
	readSQL  = "SELECT stock FROM good_stock WHERE goods_id = ?"
	writeSQL = "UPDATE good_stock SET stock = ?, version = version + 1 WHERE goods_id = ?"
)

// errHeld is a refusal: somebody else holds the lock.
var errHeld = errors.New("the lock is held")

// openShop opens the shop of a practice. The caller closes it.
func (s *Stage) openShop(ctx context.Context) (*shop, error) {
	db, err := s.openMySQL(ctx, nil)
	if err != nil {
		return nil, err
	}
	return &shop{
		db:    db,
		redis: s.openRedis(),
		key:   s.lockKey(),
		item:  s.Item,
	}, nil
}

// openShopAndProxy opens the shop of a practice, and a proxy in front of Redis. The caller closes both.
func (s *Stage) openShopAndProxy(ctx context.Context) (*shop, *tcpproxy.Proxy, error) {
	shop, err := s.openShop(ctx)
	if err != nil {
		return nil, nil, err
	}
	proxy, err := tcpproxy.Start(s.Addresses.Redis[0])
	if err != nil {
		shop.close()
		return nil, nil, err
	}
	return shop, proxy, nil
}

func (s *shop) close() {
	s.redis.Close()
	s.db.Close()
}

// lock asks for the lock once.
func (s *shop) lock(ctx context.Context, owner string) error {
	err := s.redis.SetArgs(ctx, s.key, owner, redis.SetArgs{Mode: "NX", TTL: lease}).Err()
	if errors.Is(err, redis.Nil) {
		return errHeld
	}
	return err
}

// holder is the owner that holds the lock; empty if it is free.
func (s *shop) holder(ctx context.Context) (string, error) {
	owner, err := s.redis.Get(ctx, s.key).Result()
	if errors.Is(err, redis.Nil) {
		return "", nil
	}
	return owner, err
}

// awaitFree waits until nobody holds the lock.
func (s *shop) awaitFree(ctx context.Context) error {
	return eventually(ctx, "the lock is free", func() (bool, error) {
		exists, err := s.redis.Exists(ctx, s.key).Result()
		return exists == 0, err
	})
}

// unlock deletes the lock.
func (s *shop) unlock(ctx context.Context) error { return s.redis.Del(ctx, s.key).Err() }

func (s *shop) read(ctx context.Context) (units int64, err error) {
	err = s.db.QueryRowContext(ctx, readSQL, s.item).Scan(&units)
	return units, err
}

func (s *shop) write(ctx context.Context, units int64) error {
	_, err := s.db.ExecContext(ctx, writeSQL, units, s.item)
	return err
}

// sellWithin is sell for a client that waits for the lock.
func (s *shop) sellWithin(ctx context.Context, owner string, count int64, wait time.Duration) (int64, error) {
	for waits := time.Now().Add(wait); ; {
		remaining, err := s.sell(ctx, owner, count)
		if !errors.Is(err, errHeld) || time.Now().After(waits) {
			return remaining, err
		}
		time.Sleep(pollInterval)
	}
}

// sell deducts under the lock, and returns the units that remain.
func (s *shop) sell(ctx context.Context, owner string, count int64) (remaining int64, err error) {
	if err := s.lock(ctx, owner); err != nil {
		return 0, err
	}
	units, err := s.read(ctx)
	if err != nil {
		return 0, err
	}
	if err := s.write(ctx, units-count); err != nil {
		return 0, err
	}
	return units - count, s.unlock(ctx)
}
