package redis

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// StreamIndexKey is a set of the items that have a stream. In a Cluster one master has this set. If that master is
// down, items on the others are still sold: the replica remembers them and adds them to the index later.
const StreamIndexKey = "stock:streams"

// StreamGroup is the consumer group of every stream, and the only consumer in it: all replicas share it. Entries that
// were delivered but not written to MySQL are found by the time since their delivery. Consumers with names of
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
// idle streams are deleted. An error means that the script did nothing, because the stream could not be opened or ctx
// ended. An error of the script itself is in the reply.
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

// OpenStream makes the stream of an item, with its consumer group, and then adds the item to the index. The stream
// comes first, because an item in the index without a stream is removed. It also creates the epoch (0 if there is
// none), by which restock knows that MySQL has the item.
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
