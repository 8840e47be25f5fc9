package stream

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/jmoiron/sqlx"
	goredis "github.com/redis/go-redis/v9"

	"stock/internal/stock"
	"stock/internal/stock/mysql"
	"stock/internal/stock/redis"
)

// Admin observes and maintains what redis-stream keeps. Both servers may be in use by replicas that sell.
type Admin struct {
	MySQL *sqlx.DB
	Redis goredis.UniversalClient

	KeyPrefix string // see stock.Deps
}

// NewAdmin makes an Admin of a replica's servers.
func NewAdmin(d stock.Deps) Admin {
	return Admin{MySQL: d.MySQL, Redis: d.Redis, KeyPrefix: d.KeyPrefix}
}

func (a Admin) streams() streams { return streams{redis.Store{Client: a.Redis, Prefix: a.KeyPrefix}} }

// Backlog is what redis-stream has sold and not yet written to MySQL, in all replicas together.
type Backlog struct {
	Entries int64         // in the streams
	Age     time.Duration // of the oldest entry by this machine's clock; 0 if there is none
}

// Backlog asks Redis for the streams in the index. It fails with ErrUnavailable or ErrBusy, even if only one master
// of a Cluster does not answer: a partial backlog would be misleading.
func (a Admin) Backlog(ctx context.Context) (Backlog, error) {
	if a.Redis == nil {
		return Backlog{}, fmt.Errorf("read the backlog of redis-stream: Redis is not configured: %w", stock.ErrUnavailable)
	}
	in := a.streams()
	ids, err := in.indexed(ctx)
	if err != nil {
		return Backlog{}, redis.Refusal(err)
	}
	found, err := in.inspect(ctx, ids)
	if err != nil {
		return Backlog{}, redis.Refusal(err)
	}
	var b Backlog
	var oldest time.Time
	b.Entries, oldest = total(found)
	if !oldest.IsZero() {
		b.Age = max(time.Since(oldest), 0)
	}
	return b, nil
}

// Items lists the items that MySQL has or that redis-stream is selling, in ascending order.
func (a Admin) Items(ctx context.Context) ([]int64, error) {
	if err := a.configured(); err != nil {
		return nil, err
	}
	indexed, err := a.streams().indexed(ctx)
	if err != nil {
		return nil, redis.Refusal(err)
	}
	stored, err := mysql.Store{DB: a.MySQL}.ItemsAfter(ctx, 0, math.MaxInt)
	if err != nil {
		return nil, err
	}
	all := map[int64]bool{}
	for _, id := range slices.Concat(indexed, stored) {
		all[id] = true
	}
	return slices.Sorted(maps.Keys(all)), nil
}

func (a Admin) configured() error {
	if a.MySQL == nil || a.Redis == nil {
		return fmt.Errorf("both MySQL and Redis must be configured: %w", stock.ErrUnavailable)
	}
	return nil
}
