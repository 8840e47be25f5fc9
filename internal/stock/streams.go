package stock

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// streams are the streams of sales in Redis.
type streams struct{ client redis.UniversalClient }

// indexKey is a set of goods that have a stream. It is a hint, by which streams are found at once, and no more: in a Cluster
// it lies on one master, and what that one holds must not keep the goods of the others from being sold.
const indexKey = "stock:streams"

// All replicas are one consumer of one group. Entries that nobody writes are told by the time since their delivery alone,
// whoever got them; consumers of many names would pile up with every start.
const streamGroup = "stock"

func streamKey(goodsID int64) string { return redisKey(goodsID) + ":sales" }

// announce puts goods into the index.
func (s streams) announce(ctx context.Context, goods ...int64) error {
	return s.client.SAdd(ctx, indexKey, members(goods)...).Err()
}

// unlist takes goods out of the index. Who sells one of them meanwhile announces it again, or another finds it.
func (s streams) unlist(ctx context.Context, goods []int64) error {
	for chunk := range slices.Chunk(goods, 1000) {
		if err := s.client.SRem(ctx, indexKey, members(chunk)...).Err(); err != nil {
			return err
		}
	}
	return nil
}

func members(goods []int64) []any {
	members := make([]any, len(goods))
	for i, id := range goods {
		members[i] = id
	}
	return members
}

// open gives the stream of a goods a consumer group, where it has none.
func (s streams) open(ctx context.Context, goodsID int64) error {
	err := s.client.XGroupCreateMkStream(ctx, streamKey(goodsID), streamGroup, "0").Err()
	if redis.HasErrorPrefix(err, "BUSYGROUP") {
		return nil
	}
	return err
}

// goods lists all goods in the index.
func (s streams) goods(ctx context.Context) (goods []int64, err error) {
	return goods, s.client.SMembers(ctx, indexKey).ScanSlice(&goods)
}

// delivery is what was delivered of a stream.
type delivery struct {
	messages []redis.XMessage
	next     string // where to go on; empty at the end of what is overdue, and for what is new
}

// unread delivers entries that were not delivered before.
func (s streams) unread(ctx context.Context, pipe redis.Pipeliner, goodsID int64) func() (delivery, error) {
	reply := pipe.XReadGroup(ctx, &redis.XReadGroupArgs{
		Group: streamGroup, Consumer: streamGroup, Streams: []string{streamKey(goodsID), ">"}, Count: entriesATime, Block: -1,
	})
	return func() (delivery, error) {
		streams, err := reply.Result()
		if err != nil {
			return delivery{}, err
		}
		return delivery{messages: streams[0].Messages}, nil
	}
}

// overdue delivers entries again that were delivered long ago, from one of them on.
func (s streams) overdue(ctx context.Context, pipe redis.Pipeliner, goodsID int64, late time.Duration, from string) func() (delivery, error) {
	reply := pipe.XAutoClaim(ctx, &redis.XAutoClaimArgs{
		Stream: streamKey(goodsID), Group: streamGroup, Consumer: streamGroup, MinIdle: late, Start: from, Count: entriesATime,
	})
	return func() (delivery, error) {
		messages, next, err := reply.Result()
		if next == "0-0" {
			next = ""
		}
		return delivery{messages, next}, err
	}
}

//go:embed lua/stream_remove.lua
var streamRemoveLua string

var streamRemoveScript = redis.NewScript(streamRemoveLua)

// remove deletes entries, and returns what became of it, by goods. Those of one goods are deleted and acknowledged at once: an
// entry that is acknowledged and still there would never be delivered again. Each goods is tried, whatever becomes of the
// others: what is not deleted is overdue after a while, found in stream_sale, and deleted then.
func (s streams) remove(ctx context.Context, sales []sale) map[int64]error {
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		errs = map[int64]error{}
	)
	for id, sales := range byGoods(sales) { // each its own script: in a Cluster, none reaches two slots
		wg.Go(func() {
			args := []any{streamGroup}
			for _, sale := range sales {
				args = append(args, sale.entry, sale.nonce)
			}
			err := streamRemoveScript.Run(ctx, s.client, []string{streamKey(id)}, args...).Err()
			mu.Lock()
			defer mu.Unlock()
			errs[id] = err
		})
	}
	wg.Wait()
	return errs
}

// park acknowledges an entry that nobody can write: it stays in the stream, to be looked at, and is never delivered again.
func (s streams) park(ctx context.Context, goodsID int64, entry string) error {
	return s.client.XAck(ctx, streamKey(goodsID), streamGroup, entry).Err()
}

// lengths counts the entries of streams, and finds the time of the oldest one in all of them. Beside an error it returns
// what it got.
func (s streams) lengths(ctx context.Context, goods []int64) (lengths map[int64]int64, oldest time.Time, err error) {
	lengths = map[int64]int64{}
	for chunk := range slices.Chunk(goods, 1000) {
		counts, heads := make([]*redis.IntCmd, len(chunk)), make([]*redis.XMessageSliceCmd, len(chunk))
		_, failed := s.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for i, id := range chunk {
				counts[i] = pipe.XLen(ctx, streamKey(id))
				heads[i] = pipe.XRangeN(ctx, streamKey(id), "-", "+", 1)
			}
			return nil
		})
		err = cmp.Or(err, failed)
		for i, id := range chunk {
			if counts[i].Err() != nil || heads[i].Err() != nil {
				continue
			}
			lengths[id] = counts[i].Val()
			for _, head := range heads[i].Val() {
				milliseconds, _, _ := strings.Cut(head.ID, "-")
				ms, _ := strconv.ParseInt(milliseconds, 10, 64)
				if at := time.UnixMilli(ms); oldest.IsZero() || at.Before(oldest) {
					oldest = at
				}
			}
		}
	}
	return lengths, oldest, err
}

// Backlog is what redis-stream has sold and not yet written to MySQL, in all replicas together.
type Backlog struct {
	Sales int64         // entries in the streams
	Age   time.Duration // of the oldest by this machine's clock; 0 where there is none
}

// Backlog asks Redis for the streams of all goods. It fails with ErrUnavailable or ErrBusy, also where one master of a Cluster
// does not answer: a part of it would look like less.
func (s *Service) Backlog(ctx context.Context) (Backlog, error) {
	if s.deps.Redis == nil {
		return Backlog{}, fmt.Errorf("store %s: not configured: %w", Redis, ErrUnavailable)
	}
	in := streams{s.deps.Redis}
	goods, err := in.goods(ctx)
	if err = redisUnwritten(err); err != nil && s.deps.MySQL != nil {
		goods, err = mysqlStore{s.deps.MySQL}.goods(ctx)
	}
	if err != nil {
		return Backlog{}, err
	}
	lengths, oldest, err := in.lengths(ctx, goods)
	if err != nil {
		return Backlog{}, redisUnwritten(err)
	}
	var b Backlog
	for _, n := range lengths {
		b.Sales += n
	}
	if !oldest.IsZero() {
		b.Age = max(time.Since(oldest), 0)
	}
	return b, nil
}

// redisBooks is what Redis has of one goods at one moment.
type redisBooks struct {
	known bool
	units int64
	epoch int64
	last  string // the youngest entry in the stream; empty where there is none
}

// books reads what Redis has of a goods, but for the entries of the stream up to the last one: see upTo.
func (s streams) books(ctx context.Context, goodsID int64) (b redisBooks, err error) {
	var units, epoch *redis.StringCmd
	var last *redis.XMessageSliceCmd
	_, err = s.client.TxPipelined(ctx, func(tx redis.Pipeliner) error {
		units, epoch = tx.Get(ctx, redisKey(goodsID)), tx.Get(ctx, epochKey(goodsID))
		last = tx.XRevRangeN(ctx, streamKey(goodsID), "+", "-", 1)
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return b, redisUnwritten(err)
	}
	b.units, err = units.Int64()
	if b.known = !errors.Is(err, redis.Nil); b.known && err != nil {
		return b, redisUnwritten(err)
	}
	if b.epoch, err = epoch.Int64(); err != nil && !errors.Is(err, redis.Nil) {
		return b, redisUnwritten(err)
	}
	messages, err := last.Result()
	if err != nil {
		return b, redisUnwritten(err)
	}
	for _, message := range messages {
		b.last = message.ID
	}
	return b, nil
}

// upTo passes the sales in a goods' stream up to an entry to a function, some at a time: a backlog may be larger than what
// Redis should send at once, or this process should hold. It counts the entries that are no sales.
func (s streams) upTo(ctx context.Context, goodsID int64, last string, each func([]sale) error) (unreadable int, err error) {
	const page = 1000
	for from := "-"; ; {
		messages, err := s.client.XRangeN(ctx, streamKey(goodsID), from, last, page).Result()
		if err != nil {
			return unreadable, redisUnwritten(err)
		}
		var sales []sale
		for _, message := range messages {
			s, err := readSale(goodsID, message)
			if err != nil {
				unreadable++
				continue
			}
			sales = append(sales, s)
		}
		if err := each(sales); err != nil || len(messages) < page {
			return unreadable, err
		}
		from = "(" + messages[page-1].ID
	}
}
