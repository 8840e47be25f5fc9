package stream

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"strconv"

	goredis "github.com/redis/go-redis/v9"

	"stock/internal/stock"
	"stock/internal/stock/mysql"
	"stock/internal/stock/redis"
	"stock/internal/stock/share"
)

// Finding tells how the stock of an item in Redis compares with that in MySQL, with the sales on their way taken into
// account.
type Finding string

// The findings.
const (
	// Agree: Redis has what MySQL has, less the sales on their way.
	Agree Finding = "agree"
	// TooMany: Redis has more. It has lost writes, or units were sold only from MySQL. MySQL proves those sales:
	// mended.
	TooMany Finding = "Redis has too many"
	// TooFew: Redis has less. Units left Redis without an entry in the stream: another strategy sold them, or entries were
	// lost. Nothing proves that the units were sold: not mended.
	TooFew Finding = "Redis has too few"
	// NotInRedis: Redis has lost the item, and with it the sales that had not reached MySQL: mended.
	NotInRedis Finding = "Redis has none"
	// OlderInRedis: a stock was set in MySQL and did not reach Redis, which has sold nothing since: mended.
	OlderInRedis Finding = "Redis has an older stock"
	// SoldFromOlder: a stock was set in MySQL and did not reach Redis, and there are sales that MySQL did not deduct.
	// No clock can prove whether they were made before the stock was set: not mended.
	SoldFromOlder Finding = "Redis has sold from an older stock"
	// OlderInMySQL: MySQL has lost writes, and what Redis sells is not deducted from it: not mended.
	OlderInMySQL Finding = "MySQL has an older stock"
	// NotInMySQL: MySQL does not know the item: not mended.
	NotInMySQL Finding = "MySQL has none"
)

// Mendable reports whether MySQL proves what Redis should have.
func (f Finding) Mendable() bool {
	return f == TooMany || f == NotInRedis || f == OlderInRedis
}

// Balance compares one item in Redis and in MySQL at one moment.
type Balance struct {
	GoodsID int64
	Finding Finding
	Redis   int64 // units; 0 if Redis has none
	MySQL   int64 // units, negative if more was sold than MySQL had; 0 if MySQL has none
	// Pending is the number of units that Redis has sold from MySQL's stock and MySQL has not deducted yet.
	Pending int64
	// Stale is the number of units in the stream that were sold from another stock. They will be recorded and not
	// deducted.
	Stale int64
	// Unreadable is the number of entries in the stream that are not sales. They are never written to MySQL.
	Unreadable int
	Mended     bool // Redis now has MySQL's units less the pending ones
}

// Difference is how many units Redis has too many, or too few if it is negative. It is meaningful only if both have a
// stock of the same epoch.
func (b Balance) Difference() int64 { return b.Redis - (b.MySQL - b.Pending) }

// Reconcile compares one item in Redis and in MySQL and, if mend is true, mends Redis where MySQL proves what it should
// have. Both may sell meanwhile: the row's lock in MySQL stops writes to it for a few round trips, so that the two
// readings belong together.
//
// Setting a stock, and a restock, look like a difference while they are on their way from one store to the other:
// compare again before you mend. Errors are ErrUnknownItem if neither has the item, ErrBusy, ErrUnavailable, and
// ErrUnknown if Redis may have been mended.
func (a Admin) Reconcile(ctx context.Context, goodsID int64, mend bool) (Balance, error) {
	return a.reconcile(ctx, goodsID, func(f Finding) bool { return mend && f.Mendable() })
}

// FillRedis gives Redis the stock that MySQL has of an item, less the sales on their way, if Redis has none. Any
// number of replicas may do so at the same time while others sell. Other differences are reported and left. Its
// errors are those of Reconcile.
func (a Admin) FillRedis(ctx context.Context, goodsID int64) (Balance, error) {
	return a.reconcile(ctx, goodsID, func(f Finding) bool { return f == NotInRedis })
}

func (a Admin) reconcile(ctx context.Context, goodsID int64, mend func(Finding) bool) (b Balance, err error) {
	if err := a.configured(); err != nil {
		return b, err
	}
	// READ COMMITTED shows what was committed before the lock was granted, on TiDB to a plain SELECT too.
	err = mysql.Store{DB: a.MySQL}.InTx(ctx, []int64{share.Upkeep}, mysql.ReadCommitted, func(tx mysql.Tx) error {
		c := comparison{streams: a.streams(), tx: tx, goodsID: goodsID}
		b, err = c.compare(ctx)
		if err != nil || !mend(b.Finding) {
			return err
		}
		err = c.mend(ctx, b)
		b.Mended = err == nil
		return err
	})
	return b, err
}

// comparison is what both servers have of one item, while its row is locked.
type comparison struct {
	streams
	tx      mysql.Tx
	goodsID int64

	inMySQL    bool
	epoch      int64 // of MySQL's stock
	redis      snapshot
	undeducted bool // MySQL does not deduct some sales that were made from the stock now in Redis
}

func (c *comparison) compare(ctx context.Context) (Balance, error) {
	b := Balance{GoodsID: c.goodsID}
	const query = "SELECT stock, epoch FROM good_stock WHERE goods_id = ? FOR UPDATE"
	var row struct{ Stock, Epoch int64 }
	err := c.tx.GetContext(ctx, &row, query, c.goodsID)
	b.MySQL, c.epoch = row.Stock, row.Epoch
	c.inMySQL = !errors.Is(err, sql.ErrNoRows)
	if err != nil && c.inMySQL {
		return b, err
	}
	if c.redis, err = c.snapshot(ctx, c.goodsID); err != nil {
		return b, err
	}
	if !c.inMySQL && !c.redis.known {
		return b, stock.UnknownItem(c.goodsID, "MySQL or Redis")
	}
	b.Redis = c.redis.units
	if err := c.countSales(ctx, &b); err != nil {
		return b, err
	}
	b.Finding = c.find(b)
	return b, nil
}

// countSales adds up the sales that are on their way to MySQL.
func (c *comparison) countSales(ctx context.Context, b *Balance) (err error) {
	if c.redis.last != "" {
		b.Unreadable, err = c.eachSale(ctx, c.goodsID, c.redis.last, func(sales []sale) error {
			recorded, err := findRecorded(ctx, c.tx, sales)
			for _, sale := range sales {
				switch {
				case recorded[sale.saleKey]: // and about to be deleted
				case c.inMySQL && sale.epoch == c.epoch:
					b.Pending += sale.units
				default:
					b.Stale += sale.units
					c.undeducted = c.undeducted || sale.epoch == c.redis.epoch
				}
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	if c.inMySQL && c.redis.known && c.redis.epoch < c.epoch && !c.undeducted {
		const query = "SELECT EXISTS (SELECT 1 FROM stream_sale WHERE goods_id = ? AND epoch = ? AND NOT deducted)"
		return c.tx.GetContext(ctx, &c.undeducted, query, c.goodsID, c.redis.epoch)
	}
	return nil
}

func (c *comparison) find(b Balance) Finding {
	switch {
	case !c.inMySQL:
		return NotInMySQL
	case c.redis.epoch > c.epoch:
		return OlderInMySQL
	case !c.redis.known:
		return NotInRedis
	case c.redis.epoch < c.epoch && c.undeducted:
		return SoldFromOlder
	case c.redis.epoch < c.epoch:
		return OlderInRedis
	case b.Difference() > 0:
		return TooMany
	case b.Difference() < 0:
		return TooFew
	}
	return Agree
}

var (
	//go:embed lua/mend.lua
	mendLua    string
	mendScript = goredis.NewScript(mendLua)
)

// mend sets Redis to what MySQL proves.
func (c *comparison) mend(ctx context.Context, b Balance) error {
	found := ""
	if c.redis.known {
		found = strconv.FormatInt(c.redis.units, 10)
	}
	keys := []string{c.Key(c.goodsID), c.EpochKey(c.goodsID)}
	err := mendScript.Run(ctx, c.Client, keys,
		c.redis.epoch, found, c.epoch, -b.Difference(), b.MySQL-b.Pending).Err()
	if errors.Is(err, goredis.Nil) {
		return fmt.Errorf("%w: the stock of item %d has changed meanwhile: reconcile it again", stock.ErrBusy, c.goodsID)
	}
	return redis.ClassifyItemWrite(c.goodsID, err)
}
