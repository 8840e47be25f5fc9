package oracle

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"
)

// Viewer shows people what the stores hold of an item. Unlike an Oracle, it is not counted, and it takes a server that
// does not answer for what it is: a scenario may have stopped it.
type Viewer struct {
	db     *sql.DB
	prefix string       // of keys
	redis  []namedRedis // the one that sells, then the masters of Redlock
}

type namedRedis struct {
	name   string
	client redis.UniversalClient
}

// Contents is what the stores hold of an item.
type Contents struct {
	Item   int64      `json:"item"`
	MySQL  *Row       `json:"mysql"` // nil: no answer, or no such item
	Redis  *RedisItem `json:"redis"` // nil: no answer
	Locks  []Lock     `json:"locks"`
	Silent []string   `json:"silent"` // servers that did not answer
}

// Row is what MySQL holds.
type Row struct {
	Stock   int64  `json:"stock"`
	Slots   *int64 `json:"slots"` // the stock of the store slots; nil: the item is not there
	Units   *int64 `json:"units"` // the same of the store units
	Version int64  `json:"version"`
	Fence   uint64 `json:"fence"` // the token of the last sale through a fence; 0: none
	Issuer  string `json:"issuer"`
	Ledger  int64  `json:"ledger"` // units sold and not given back, by the ledger
}

// RedisItem is what Redis holds, without locks.
type RedisItem struct {
	Stock  *int64 `json:"stock"` // nil: the item is not there
	Fence  string `json:"fence"` // of the last sale: token and issuer
	Stream int64  `json:"stream"`
}

// Lock is a lock that somebody holds, or that somebody waits for.
type Lock struct {
	Server  string   `json:"server"`
	Key     string   `json:"key"`
	Owner   string   `json:"owner"`  // as it stands in the store; empty: nobody holds it
	TTLMS   int64    `json:"ttl_ms"` // -1: it does not expire
	Waiting []string `json:"waiting"`
	Token   string   `json:"token"` // the last fencing token; empty: the lock has none
}

// noAnswer is how long a Viewer waits for a server.
const noAnswer = 400 * time.Millisecond

// NewViewer does not connect.
func NewViewer(config Config) (*Viewer, error) {
	parsed, err := config.MySQLConfig(config.MySQLDSN)
	if err != nil {
		return nil, err
	}
	parsed.InterpolateParams = true
	parsed.Timeout, parsed.ReadTimeout = noAnswer, 2*noAnswer
	parsed.Logger = &mysql.NopLogger{}
	connector, err := mysql.NewConnector(parsed)
	if err != nil {
		return nil, fmt.Errorf("MySQL DSN: %w", err)
	}
	v := &Viewer{db: sql.OpenDB(connector), prefix: config.KeyPrefix}
	v.db.SetMaxOpenConns(1)
	v.addRedis("redis", config, config.Redis)
	for i, address := range config.Redlock {
		v.addRedis(fmt.Sprintf("redlock-%d", i+1), config, []string{address})
	}
	return v, nil
}

func (v *Viewer) addRedis(name string, config Config, addresses []string) {
	if len(addresses) == 0 {
		return
	}
	options := config.RedisOptions(addresses...)
	options.MaxRetries, options.DisableIdentity = -1, true
	options.DialTimeout, options.ReadTimeout, options.ContextTimeoutEnabled = noAnswer, noAnswer, true
	v.redis = append(v.redis, namedRedis{name, connect(options)})
}

// Close closes the connections.
func (v *Viewer) Close() error {
	errs := []error{v.db.Close()}
	for _, server := range v.redis {
		errs = append(errs, server.client.Close())
	}
	return errors.Join(errs...)
}

// Look reads what the stores hold of an item, and the locks of strategies with the given names.
func (v *Viewer) Look(ctx context.Context, item int64, names []string) Contents {
	ctx, cancel := context.WithTimeout(ctx, 2*noAnswer)
	defer cancel()
	c := Contents{Item: item, Locks: []Lock{}, Silent: []string{}}
	keys := make([]string, len(names))
	for i, name := range names {
		keys[i] = fmt.Sprintf("%s%s:{%d}", v.prefix, name, item)
	}
	seen := make([]redisView, len(v.redis))
	var looking sync.WaitGroup
	for i := range v.redis {
		looking.Go(func() { seen[i] = v.lookAtRedis(ctx, v.redis[i], item, keys) })
	}
	row, locks, err := v.lookAtMySQL(ctx, item, keys)
	looking.Wait()
	if err != nil {
		c.Silent = append(c.Silent, "mysql")
	}
	c.MySQL = row
	for i, s := range seen {
		if s.err != nil {
			c.Silent = append(c.Silent, v.redis[i].name)
			continue
		}
		if i == 0 {
			c.Redis = &s.item
		}
		c.Locks = append(c.Locks, s.locks...)
	}
	c.Locks = append(c.Locks, locks...)
	return c
}

// lookAtMySQL also finds the locks of GET_LOCK.
func (v *Viewer) lookAtMySQL(ctx context.Context, item int64, keys []string) (row *Row, locks []Lock, err error) {
	row = &Row{}
	err = v.db.QueryRowContext(ctx, `SELECT stock, version, fence, fence_issuer,
		(SELECT SUM(stock) FROM good_slot WHERE goods_id = ?),
		(SELECT unmade + (SELECT COUNT(*) FROM good_unit WHERE goods_id = ?) FROM unit_stock WHERE goods_id = ?),
		(SELECT COALESCE(SUM(count - given_back), 0) FROM ledger WHERE goods_id = ?)
		FROM good_stock WHERE goods_id = ?`, item, item, item, item, item).
		Scan(&row.Stock, &row.Version, &row.Fence, &row.Issuer, &row.Slots, &row.Units, &row.Ledger)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	for _, key := range keys {
		if !strings.Contains(key, "getlock") {
			continue
		}
		var connection sql.NullInt64
		if err := v.db.QueryRowContext(ctx, "SELECT IS_USED_LOCK(?)", key).Scan(&connection); err != nil {
			return nil, nil, err
		}
		if connection.Valid {
			owner := fmt.Sprintf("connection %d", connection.Int64)
			locks = append(locks, Lock{Server: "mysql", Key: key, Owner: owner, TTLMS: -1})
		}
	}
	return row, locks, nil
}

// redisView is what was seen in one Redis.
type redisView struct {
	item  RedisItem
	locks []Lock
	err   error
}

// lockView is what was asked about one lock. Which answers mean something depends on the kind of lock.
type lockView struct {
	key           string
	value         *redis.StringCmd      // a lock whose value is its owner
	holds         *redis.StringSliceCmd // a re-entrant lock: a set of holds
	ttl           *redis.DurationCmd
	waiters       *redis.StringSliceCmd // of lock-redis-fair
	queue         *redis.StringSliceCmd // of lock-redis-queue
	token, memory *redis.StringCmd      // of lock-redis-fenced, of lock-redis-queue
}

func (v *Viewer) lookAtRedis(ctx context.Context, server namedRedis, item int64, keys []string) (seen redisView) {
	pipe := server.client.Pipeline()
	name := fmt.Sprintf("%sstock:{%d}", v.prefix, item)
	stock, fence, stream := pipe.Get(ctx, name), pipe.Get(ctx, name+":fence"), pipe.XLen(ctx, name+":sales")
	asked := make([]lockView, len(keys))
	for i, key := range keys {
		asked[i] = lockView{
			key: key, value: pipe.Get(ctx, key), holds: pipe.SMembers(ctx, key), ttl: pipe.PTTL(ctx, key),
			waiters: pipe.LRange(ctx, key+":waiters", 0, -1), queue: pipe.ZRange(ctx, key+":queue", 0, -1),
			token: pipe.Get(ctx, key+":token"), memory: pipe.HGet(ctx, key+":memory", "token"),
		}
	}
	_, _ = pipe.Exec(ctx) // an answer may be an error of its own: a key may not exist, or be of another type
	if seen.err = stream.Err(); seen.err != nil {
		return seen
	}
	if units, err := stock.Int64(); err == nil {
		seen.item.Stock = &units
	}
	seen.item.Fence, seen.item.Stream = fence.Val(), stream.Val()
	for _, view := range asked {
		if lock, used := view.lock(server.name); used {
			seen.locks = append(seen.locks, lock)
		}
	}
	return seen
}

// lock returns the lock, and whether somebody holds it, or waits for it.
func (v lockView) lock(server string) (lock Lock, used bool) {
	lock = Lock{Server: server, Key: v.key, Owner: v.value.Val(), TTLMS: -1, Token: v.token.Val() + v.memory.Val()}
	if holds := v.holds.Val(); len(holds) > 0 {
		lock.Owner = strings.Join(holds, " ")
	}
	if ttl := v.ttl.Val(); ttl > 0 {
		lock.TTLMS = ttl.Milliseconds()
	}
	lock.Waiting = append(v.waiters.Val(), v.queue.Val()...)
	return lock, lock.Owner != "" || len(lock.Waiting) > 0
}
