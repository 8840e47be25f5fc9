package stream

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"stock/internal/stock/redis"
)

// streams are the streams of sales in Redis, one for each item, and the index of the items that have one.
type streams struct{ redis.Store }

// entriesPerRead bounds how many entries of one stream are delivered at a time.
const entriesPerRead = 256

// streamsPerCall bounds how many streams are asked or deleted in one pipeline.
const streamsPerCall = 1000

// unindex removes items that have no stream from the index. A stream may be opened at the same time: the opener makes
// it before it adds the item, so that either the item is added after it was removed here, or the stream is found here
// and the item is put back. Should this replica die in between, the replica that sells the item puts it back.
func (s streams) unindex(ctx context.Context, ids []int64) error {
	for chunk := range slices.Chunk(ids, streamsPerCall) {
		members := make([]any, len(chunk))
		for i, id := range chunk {
			members[i] = id
		}
		if err := s.Client.SRem(ctx, s.StreamIndexKey(), members...).Err(); err != nil {
			return err
		}
		found, err := s.inspect(ctx, chunk)
		back := slices.DeleteFunc(slices.Clone(chunk), func(id int64) bool {
			stream, answered := found[id]
			return answered && !stream.exists
		})
		if err := cmp.Or(s.IndexStreams(ctx, back...), err); err != nil {
			return err
		}
	}
	return nil
}

var (
	//go:embed lua/close.lua
	closeLua    string
	closeScript = goredis.NewScript(closeLua)
)

// close deletes the streams that are empty.
func (s streams) close(ctx context.Context, ids []int64) error {
	for chunk := range slices.Chunk(ids, streamsPerCall) {
		_, err := s.Client.Pipelined(ctx, func(pipe goredis.Pipeliner) error {
			for _, id := range chunk {
				closeScript.Eval(ctx, pipe, []string{s.StreamKey(id)})
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// indexed lists the items in the index.
func (s streams) indexed(ctx context.Context) (ids []int64, err error) {
	reply := s.Client.SMembers(ctx, s.StreamIndexKey())
	if err := reply.Err(); err != nil { // ScanSlice does not return it
		return nil, err
	}
	err = reply.ScanSlice(&ids)
	return ids, err
}

// delivery is a number of entries that were delivered from one stream.
type delivery struct {
	messages []goredis.XMessage
	next     string // where to continue taking over overdue entries; empty at their end, and for new entries
}

// readNew delivers entries that were not delivered before.
func (s streams) readNew(ctx context.Context, pipe goredis.Pipeliner, goodsID int64) func() (delivery, error) {
	reply := pipe.XReadGroup(ctx, &goredis.XReadGroupArgs{
		Group: redis.StreamGroup, Consumer: redis.StreamGroup,
		Streams: []string{s.StreamKey(goodsID), ">"}, Count: entriesPerRead, Block: -1,
	})
	return func() (delivery, error) {
		streams, err := reply.Result()
		if err != nil {
			return delivery{}, err
		}
		return delivery{messages: streams[0].Messages}, nil
	}
}

// takeOver delivers entries again that were delivered longer than late ago, starting with the entry from.
func (s streams) takeOver(
	ctx context.Context, pipe goredis.Pipeliner, goodsID int64, late time.Duration, from string,
) func() (delivery, error) {
	reply := pipe.XAutoClaim(ctx, &goredis.XAutoClaimArgs{
		Stream: s.StreamKey(goodsID), Group: redis.StreamGroup, Consumer: redis.StreamGroup,
		MinIdle: late, Start: from, Count: entriesPerRead,
	})
	return func() (delivery, error) {
		messages, next, err := reply.Result()
		if next == "0-0" {
			next = ""
		}
		return delivery{messages, next}, err
	}
}

var (
	//go:embed lua/remove.lua
	removeLua    string
	removeScript = goredis.NewScript(removeLua)
)

// remove deletes entries and returns the result for each item. The entries of one item are deleted and acknowledged
// in one step: an entry that is acknowledged but not deleted would never be delivered again. An entry that cannot be
// deleted is delivered again later, found in stream_sale, and deleted then.
func (s streams) remove(ctx context.Context, sales []sale) map[int64]error {
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		errs = map[int64]error{}
	)
	for id, sales := range byItem(sales) { // a script for each: in a Cluster, none reaches two hash slots
		wg.Go(func() {
			args := []any{redis.StreamGroup}
			for _, sale := range sales {
				args = append(args, sale.entry, sale.nonce)
			}
			err := removeScript.Run(ctx, s.Client, []string{s.StreamKey(id)}, args...).Err()
			mu.Lock()
			defer mu.Unlock()
			errs[id] = err
		})
	}
	wg.Wait()
	return errs
}

// park acknowledges an entry that cannot be read as a sale: it stays in the stream for inspection and is never
// delivered again.
func (s streams) park(ctx context.Context, goodsID int64, entry string) error {
	return s.Client.XAck(ctx, s.StreamKey(goodsID), redis.StreamGroup, entry).Err()
}

// condition is that of a stream at one moment.
type condition struct {
	exists  bool
	entries int64
	oldest  string // id of the oldest entry; empty if there is none
	last    string // id of the newest entry ever
	grouped bool   // it has its consumer group
}

// inspect asks for the condition of streams. If some cannot be asked, it returns the error beside those of the others.
func (s streams) inspect(ctx context.Context, ids []int64) (found map[int64]condition, err error) {
	found = map[int64]condition{}
	for chunk := range slices.Chunk(ids, streamsPerCall) {
		replies := make([]*goredis.XInfoStreamCmd, len(chunk))
		s.Pipelined(ctx, func(pipe goredis.Pipeliner) error {
			for i, id := range chunk {
				replies[i] = pipe.XInfoStream(ctx, s.StreamKey(id))
			}
			return nil
		})
		for i, id := range chunk {
			switch info, failed := replies[i].Result(); {
			case goredis.HasErrorPrefix(failed, "no such key"):
				found[id] = condition{}
			case failed != nil:
				err = cmp.Or(err, failed)
			default:
				found[id] = condition{
					exists: true, entries: info.Length, grouped: info.Groups > 0,
					oldest: info.FirstEntry.ID, last: info.LastGeneratedID,
				}
			}
		}
	}
	return found, err
}

// existing returns those of up to streamsPerCall items that have a stream, as far as Redis answers.
func (s streams) existing(ctx context.Context, ids []int64) (found []int64) {
	replies := make([]*goredis.IntCmd, len(ids))
	s.Pipelined(ctx, func(pipe goredis.Pipeliner) error {
		for i, id := range ids {
			replies[i] = pipe.Exists(ctx, s.StreamKey(id))
		}
		return nil
	})
	for i, id := range ids {
		if replies[i].Val() > 0 {
			found = append(found, id)
		}
	}
	return found
}

// total counts the entries of streams, and finds the time of the oldest one: zero if there is none.
func total(found map[int64]condition) (entries int64, oldest time.Time) {
	for _, stream := range found {
		entries += stream.entries
		if at := entryTime(stream.oldest); stream.entries > 0 && (oldest.IsZero() || at.Before(oldest)) {
			oldest = at
		}
	}
	return entries, oldest
}

// entryTime is when Redis made an entry, by its id: milliseconds, "-", and a sequence number.
func entryTime(id string) time.Time {
	milliseconds, _, _ := strings.Cut(id, "-")
	ms, _ := strconv.ParseInt(milliseconds, 10, 64)
	return time.UnixMilli(ms)
}

// snapshot is what Redis has of one item at one moment.
type snapshot struct {
	known bool
	units int64
	epoch int64
	last  string // id of the newest entry in the stream; empty if there is none
}

// snapshot reads what Redis has of an item, except for the entries of the stream: see eachSale.
func (s streams) snapshot(ctx context.Context, goodsID int64) (found snapshot, err error) {
	var units, epoch *goredis.StringCmd
	var last *goredis.XMessageSliceCmd
	_, err = s.Client.TxPipelined(ctx, func(tx goredis.Pipeliner) error {
		units, epoch = tx.Get(ctx, s.Key(goodsID)), tx.Get(ctx, s.EpochKey(goodsID))
		last = tx.XRevRangeN(ctx, s.StreamKey(goodsID), "+", "-", 1)
		return nil
	})
	if err != nil && !errors.Is(err, goredis.Nil) {
		return found, redis.Refusal(err)
	}
	found.units, err = units.Int64()
	if found.known = !errors.Is(err, goredis.Nil); found.known && err != nil {
		return found, redis.Refusal(err)
	}
	if found.epoch, err = epoch.Int64(); err != nil && !errors.Is(err, goredis.Nil) {
		return found, redis.Refusal(err)
	}
	messages, err := last.Result()
	if err != nil {
		return found, redis.Refusal(err)
	}
	for _, message := range messages {
		found.last = message.ID
	}
	return found, nil
}

// eachSale passes the sales in an item's stream, up to the entry last, to a function, a page at a time: a backlog may
// be larger than what Redis should send or this process should hold at once. It counts the entries that are not
// sales.
func (s streams) eachSale(
	ctx context.Context, goodsID int64, last string, each func([]sale) error,
) (unreadable int, err error) {
	const page = 1000
	for from := "-"; ; {
		messages, err := s.Client.XRangeN(ctx, s.StreamKey(goodsID), from, last, page).Result()
		if err != nil {
			return unreadable, redis.Refusal(err)
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
