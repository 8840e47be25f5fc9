package stock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// streams are the streams of sales in Redis.
type streams struct{ client redis.UniversalClient }

// indexKey is a set of all goods that redis-stream has sold.
const indexKey = "stock:streams"

// All replicas are one consumer of one group. Entries that nobody writes are told by the time since their delivery alone,
// whoever got them; consumers of many names would pile up with every start.
const streamGroup = "stock"

func streamKey(goodsID int64) string { return redisKey(goodsID) + ":sales" }

// open puts a goods into the index and gives its stream a consumer group, where it has none. The index comes first: a stream
// that nobody knows of would be lost from sight.
func (s streams) open(ctx context.Context, goodsID int64) error {
	if err := s.client.SAdd(ctx, indexKey, goodsID).Err(); err != nil {
		return err
	}
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

// unread delivers entries that were not delivered before.
func (s streams) unread(ctx context.Context, pipe redis.Pipeliner, goodsID int64) func() ([]redis.XMessage, error) {
	reply := pipe.XReadGroup(ctx, &redis.XReadGroupArgs{
		Group: streamGroup, Consumer: streamGroup, Streams: []string{streamKey(goodsID), ">"}, Count: entriesATime, Block: -1,
	})
	return func() ([]redis.XMessage, error) {
		streams, err := reply.Result()
		if err != nil {
			return nil, err
		}
		return streams[0].Messages, nil
	}
}

// overdue delivers entries again that were delivered long ago.
func (s streams) overdue(ctx context.Context, pipe redis.Pipeliner, goodsID int64, late time.Duration) func() ([]redis.XMessage, error) {
	reply := pipe.XAutoClaim(ctx, &redis.XAutoClaimArgs{
		Stream: streamKey(goodsID), Group: streamGroup, Consumer: streamGroup, MinIdle: late, Start: "0-0", Count: entriesATime,
	})
	return func() ([]redis.XMessage, error) {
		messages, _, err := reply.Result()
		return messages, err
	}
}

// remove deletes entries. Those of one goods are deleted and acknowledged at once: an entry that is acknowledged and still
// there would never be delivered again.
func (s streams) remove(ctx context.Context, sales []sale) error {
	entries := map[int64][]string{}
	for _, s := range sales {
		entries[s.goodsID] = append(entries[s.goodsID], s.entry)
	}
	for id, list := range entries { // each its own transaction: in a Cluster, none reaches two slots
		_, err := s.client.TxPipelined(ctx, func(tx redis.Pipeliner) error {
			tx.XAck(ctx, streamKey(id), streamGroup, list...)
			tx.XDel(ctx, streamKey(id), list...)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// lengths counts the entries of streams, and finds the time of the oldest one in all of them. Beside an error it returns
// what it got.
func (s streams) lengths(ctx context.Context, goods []int64) (lengths map[int64]int64, oldest time.Time, err error) {
	counts, heads := make([]*redis.IntCmd, len(goods)), make([]*redis.XMessageSliceCmd, len(goods))
	_, err = s.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i, id := range goods {
			counts[i] = pipe.XLen(ctx, streamKey(id))
			heads[i] = pipe.XRangeN(ctx, streamKey(id), "-", "+", 1)
		}
		return nil
	})
	lengths = map[int64]int64{}
	for i, id := range goods {
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
	return lengths, oldest, err
}

// Backlog is what redis-stream has sold and not yet written to MySQL, in all replicas together.
type Backlog struct {
	Sales int64         // entries in the streams
	Age   time.Duration // of the oldest by this machine's clock; 0 where there is none
}

// Backlog asks Redis for the streams of all goods. It fails with ErrUnavailable or ErrBusy.
func (s *Service) Backlog(ctx context.Context) (Backlog, error) {
	if s.deps.Redis == nil {
		return Backlog{}, fmt.Errorf("store %s: not configured: %w", Redis, ErrUnavailable)
	}
	in := streams{s.deps.Redis}
	goods, err := in.goods(ctx)
	if err != nil {
		return Backlog{}, redisUnwritten(err)
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
	known      bool
	units      int64
	epoch      int64
	sales      []sale // in the stream
	unreadable int    // entries that are no sales
}

// books reads all that Redis has of a goods.
func (s streams) books(ctx context.Context, goodsID int64) (b redisBooks, err error) {
	var units, epoch *redis.StringCmd
	var entries *redis.XMessageSliceCmd
	_, err = s.client.TxPipelined(ctx, func(tx redis.Pipeliner) error {
		units, epoch = tx.Get(ctx, redisKey(goodsID)), tx.Get(ctx, epochKey(goodsID))
		entries = tx.XRange(ctx, streamKey(goodsID), "-", "+")
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
	messages, err := entries.Result()
	if err != nil {
		return b, redisUnwritten(err)
	}
	for _, message := range messages {
		s, err := readSale(goodsID, message)
		if err != nil {
			b.unreadable++
			continue
		}
		b.sales = append(b.sales, s)
	}
	return b, nil
}
