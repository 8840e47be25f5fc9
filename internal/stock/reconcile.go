package stock

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/jmoiron/sqlx"
	"github.com/redis/go-redis/v9"
)

// Finding says how the stock of a goods in Redis and in MySQL compare, sales on their way taken into account.
type Finding string

// The findings.
const (
	// Agree: Redis has what MySQL has less the sales on their way.
	Agree Finding = "agree"
	// TooMany: Redis has more. It has lost writes, or units were sold from MySQL alone. MySQL proves those sales: mended.
	TooMany Finding = "Redis has too many"
	// TooFew: Redis has less. Units were taken from Redis of which no entry tells: sold by another strategy, or entries are
	// lost. Whether they were sold, nobody can prove: not mended.
	TooFew Finding = "Redis has too few"
	// NotInRedis: Redis has lost the goods. What was sold and had not come to MySQL is lost with it: mended to the rest.
	NotInRedis Finding = "Redis has none"
	// OlderInRedis: SetStock came to MySQL and not to Redis, which has sold nothing since: mended.
	OlderInRedis Finding = "Redis has an older stock"
	// SoldFromOlder: SetStock came to MySQL and not to Redis, and MySQL did not deduct sales from the stock before. Whether
	// these were made before the stock was set, no clock can prove: not mended.
	SoldFromOlder Finding = "Redis has sold from an older stock"
	// OlderInMySQL: MySQL has lost writes, and what Redis sells is not deducted from it: not mended.
	OlderInMySQL Finding = "MySQL has an older stock"
	// NotInMySQL: MySQL does not know the goods: not mended.
	NotInMySQL Finding = "MySQL has none"
)

// Mendable says whether MySQL proves what Redis should have.
func (f Finding) Mendable() bool {
	return f == TooMany || f == NotInRedis || f == OlderInRedis
}

// Balance compares one goods in Redis and in MySQL, at one moment.
type Balance struct {
	GoodsID int64
	Finding Finding
	Redis   int64 // units; 0 where it has none
	MySQL   int64 // units, below zero where more was sold than it had; 0 where it has none
	// Pending are the units that Redis has sold of MySQL's stock and MySQL has not deducted yet.
	Pending int64
	// Stale are the units in the stream that were sold from another stock: they will be recorded, and not deducted.
	Stale int64
	// Unreadable counts entries in the stream that are no sales: nobody will write them.
	Unreadable int
	Mended     bool // Redis now has MySQL's units less the pending ones
}

// Difference is how many units Redis has too many; below zero, too few. It means something where both have the same stock.
func (b Balance) Difference() int64 { return b.Redis - (b.MySQL - b.Pending) }

// GoodsToReconcile lists the goods that MySQL has or that redis-stream has sold, in ascending order.
func (s *Service) GoodsToReconcile(ctx context.Context) ([]int64, error) {
	if err := s.reconcilable(); err != nil {
		return nil, err
	}
	all := map[int64]bool{}
	indexed, err := streams{s.deps.Redis}.goods(ctx)
	if err != nil {
		return nil, redisUnwritten(err)
	}
	stored, err := mysqlStore{s.deps.MySQL}.goods(ctx)
	if err != nil {
		return nil, err
	}
	for _, id := range slices.Concat(indexed, stored) {
		all[id] = true
	}
	return slices.Sorted(maps.Keys(all)), nil
}

func (s *Service) reconcilable() error {
	if s.deps.MySQL == nil || s.deps.Redis == nil {
		return fmt.Errorf("reconcile: both MySQL and Redis must be configured: %w", ErrUnavailable)
	}
	return nil
}

//go:embed lua/mend.lua
var mendLua string

var mendScript = redis.NewScript(mendLua)

// Reconcile compares one goods in Redis and in MySQL and, if asked to, mends Redis where MySQL proves what it should have. It
// may be used while both sell: the row's lock in MySQL holds up those that write to it for the time of a few round trips, so
// that what is read from Redis meanwhile belongs to it.
//
// SetStock, and a restock, are seen as a difference while they are under way from one store to the other: what differs
// should be looked at again before it is mended. Errors are ErrUnknownGoods where neither has the goods, ErrBusy,
// ErrUnavailable, and ErrUnknown where Redis may have been mended.
func (s *Service) Reconcile(ctx context.Context, goodsID int64, mend bool) (b Balance, err error) {
	return s.reconcile(ctx, goodsID, func(f Finding) bool { return mend && f.Mendable() })
}

// FillRedis gives Redis the stock that MySQL has of a goods, less the sales on their way to it, where Redis has none. Any number
// of replicas may do so at the same time, while others sell. What else differs is told, and left. Its errors are those of
// Reconcile.
func (s *Service) FillRedis(ctx context.Context, goodsID int64) (Balance, error) {
	return s.reconcile(ctx, goodsID, func(f Finding) bool { return f == NotInRedis })
}

// reconcile mends what it is told to.
func (s *Service) reconcile(ctx context.Context, goodsID int64, mend func(Finding) bool) (b Balance, err error) {
	if err := s.reconcilable(); err != nil {
		return b, err
	}
	// What was committed before the lock was granted must be seen, on TiDB also by a plain SELECT.
	err = mysqlStore{s.deps.MySQL}.inTx(ctx, readCommitted, Request{}, func(tx *sqlx.Tx) error {
		b, err = s.compare(ctx, tx, goodsID, mend)
		return err
	})
	return b, err
}

func (s *Service) compare(ctx context.Context, tx *sqlx.Tx, goodsID int64, mend func(Finding) bool) (Balance, error) {
	b := Balance{GoodsID: goodsID, Finding: Agree}
	var epoch int64
	err := tx.QueryRowxContext(ctx, "SELECT stock, epoch FROM good_stock WHERE goods_id = ? FOR UPDATE", goodsID).Scan(&b.MySQL, &epoch)
	inMySQL := !errors.Is(err, sql.ErrNoRows)
	if err != nil && inMySQL {
		return b, refusal(err)
	}
	in := streams{s.deps.Redis}
	found, err := in.books(ctx, goodsID)
	if err != nil {
		return b, err
	}
	undeducted := false // sold from the stock that Redis has
	if found.last != "" {
		b.Unreadable, err = in.upTo(ctx, goodsID, found.last, func(sales []sale) error {
			written, err := recorded(ctx, tx, sales)
			for _, sale := range sales {
				switch {
				case written[sale.key()]: // and about to be deleted
				case inMySQL && sale.epoch == epoch:
					b.Pending += sale.units
				default:
					b.Stale += sale.units
					undeducted = undeducted || sale.epoch == found.epoch
				}
			}
			return err
		})
		if err != nil {
			return b, err
		}
	}
	if inMySQL && found.known && found.epoch < epoch && !undeducted {
		err := tx.GetContext(ctx, &undeducted, "SELECT EXISTS (SELECT 1 FROM stream_sale WHERE goods_id = ? AND epoch = ? AND NOT deducted)", goodsID, found.epoch)
		if err != nil {
			return b, refusal(err)
		}
	}
	b.Redis = found.units
	switch {
	case !inMySQL && !found.known:
		return b, fmt.Errorf("%w: goods %d is neither in MySQL nor in Redis", ErrUnknownGoods, goodsID)
	case !inMySQL:
		b.Finding = NotInMySQL
	case found.epoch > epoch:
		b.Finding = OlderInMySQL
	case !found.known:
		b.Finding = NotInRedis
	case found.epoch < epoch && undeducted:
		b.Finding = SoldFromOlder
	case found.epoch < epoch:
		b.Finding = OlderInRedis
	case b.Difference() > 0:
		b.Finding = TooMany
	case b.Difference() < 0:
		b.Finding = TooFew
	}
	if !mend(b.Finding) {
		return b, nil
	}
	units := ""
	if found.known {
		units = strconv.FormatInt(found.units, 10)
	}
	err = mendScript.Run(ctx, s.deps.Redis, []string{redisKey(goodsID), epochKey(goodsID)},
		found.epoch, units, epoch, -b.Difference(), b.MySQL-b.Pending).Err()
	if errors.Is(err, redis.Nil) {
		return b, fmt.Errorf("%w: the stock of goods %d has changed meanwhile: reconcile it again", ErrBusy, goodsID)
	}
	b.Mended = err == nil
	return b, redisWritten(err)
}
