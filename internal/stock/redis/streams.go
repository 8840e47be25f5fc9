package redis

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// StreamIndexKey is a set of the items that have a stream. In a Cluster it lies on one master, and items on other
// masters must be sold even if that one is down: then a replica remembers the items that it sells, and adds them to the
// index later.
const StreamIndexKey = "stock:streams"

// StreamGroup is the consumer group of every stream, and the only consumer in it: all replicas share it. Entries that
// nobody writes are recognized by the time since their delivery, whichever replica got them. Consumers with names of
// their own would pile up with every start.
const StreamGroup = "stock"

// IndexStreams adds items to the index of streams.
func IndexStreams(ctx context.Context, client redis.UniversalClient, ids ...int64) error {
	members := make([]any, len(ids))
	for i, id := range ids {
		members[i] = id
	}
	return client.SAdd(ctx, StreamIndexKey, members...).Err()
}

// WithStream runs a script that adds an entry to the stream of an item. If the script replies CLOSED, because there is
// no such stream, it opens the stream and runs the script again. This happens at most once in practice, because only
// idle streams are deleted. An error means that the stream could not be opened, and that the script has done nothing.
func WithStream(
	ctx context.Context, client redis.UniversalClient, goodsID int64, script func() *redis.Cmd,
) (*redis.Cmd, error) {
	for {
		reply := script()
		if !redis.HasErrorPrefix(reply.Err(), "CLOSED") {
			return reply, nil
		}
		if err := OpenStream(ctx, client, goodsID); err != nil {
			return nil, Refusal(err)
		}
	}
}

// OpenStream makes the stream of an item, with its consumer group, and then adds the item to the index. In this order,
// because the items of missing streams are removed from the index. It also creates the epoch (0 if there is none), by
// which restock knows that MySQL has the item.
func OpenStream(ctx context.Context, client redis.UniversalClient, goodsID int64) error {
	_, err := client.TxPipelined(ctx, func(tx redis.Pipeliner) error {
		tx.SetNX(ctx, EpochKey(goodsID), 0, 0)
		tx.XGroupCreateMkStream(ctx, StreamKey(goodsID), StreamGroup, "0")
		return nil
	})
	if err != nil && !redis.HasErrorPrefix(err, "BUSYGROUP") {
		return err
	}
	// If the index cannot be written, the item is sold nevertheless, but not for a caller who no longer waits.
	_ = IndexStreams(ctx, client, goodsID)
	return ctx.Err()
}
