package redis

import (
	"context"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// Key holds the stock of an item. It has braces around the id, so that all keys of one item share a hash slot of Redis
// Cluster.
func Key(goodsID int64) string { return "stock:{" + strconv.FormatInt(goodsID, 10) + "}" }

// EpochKey holds the epoch of an item's stock. If there is none, the epoch is 0.
func EpochKey(goodsID int64) string { return Key(goodsID) + ":epoch" }

// StreamKey holds the stream of an item's sales, for the strategy redis-stream.
func StreamKey(goodsID int64) string { return Key(goodsID) + ":sales" }

// fenceKey holds the registered holder: "token issuer".
func fenceKey(goodsID int64) string { return Key(goodsID) + ":fence" }

// StreamIndexKey is a set of the items that have a stream. It is a hint by which streams are found at once. In a
// Cluster it lies on one master, and items on other masters must be sold even if that one is down.
const StreamIndexKey = "stock:streams"

// IndexStreams adds items to the index of streams.
func IndexStreams(ctx context.Context, client redis.UniversalClient, ids ...int64) error {
	members := make([]any, len(ids))
	for i, id := range ids {
		members[i] = id
	}
	return client.SAdd(ctx, StreamIndexKey, members...).Err()
}
