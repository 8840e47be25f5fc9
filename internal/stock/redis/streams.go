package redis

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"
)

// StreamGroup is the consumer group of every stream, and the only consumer in it: all replicas share it. Entries that
// were delivered but not written to MySQL are found by the time since their delivery. Consumers with names of
// their own would pile up with every start.
const StreamGroup = "stock"

// Pipelined sends commands in one round trip; each has its own result. go-redis leaves all of them without a reply and
// without an error if Redis refuses the connection, as after a change of the password: they get that error here.
func (s Store) Pipelined(ctx context.Context, queue func(redis.Pipeliner) error) {
	commands, err := s.Client.Pipelined(ctx, queue)
	if err == nil || slices.ContainsFunc(commands, func(c redis.Cmder) bool { return c.Err() != nil }) {
		return
	}
	for _, command := range commands {
		command.SetErr(err)
	}
}

// IndexStreams adds items to the index of streams.
func (s Store) IndexStreams(ctx context.Context, ids ...int64) error {
	if len(ids) == 0 {
		return nil
	}
	members := make([]any, len(ids))
	for i, id := range ids {
		members[i] = id
	}
	return s.Client.SAdd(ctx, s.StreamIndexKey(), members...).Err()
}

// WithStream runs a script that adds an entry to the stream of an item. If the script replies CLOSED, because there is
// no such stream, it opens the stream and runs the script again. This happens at most once in practice, because only
// idle streams are deleted. An error means that the script did nothing, because the stream could not be opened or ctx
// ended. An error of the script itself is in the reply.
func (s Store) WithStream(ctx context.Context, goodsID int64, script func() *redis.Cmd) (*redis.Cmd, error) {
	for {
		reply := script()
		if !redis.HasErrorPrefix(reply.Err(), "CLOSED") {
			return reply, nil
		}
		if err := s.OpenStream(ctx, goodsID); err != nil {
			return nil, Refusal(err)
		}
	}
}

// OpenStream makes the stream of an item, with its consumer group, and then adds the item to the index. The stream
// comes first, because an item in the index without a stream is removed. It also creates the epoch (0 if there is
// none), by which restock knows that MySQL has the item.
func (s Store) OpenStream(ctx context.Context, goodsID int64) error {
	_, err := s.Client.TxPipelined(ctx, func(tx redis.Pipeliner) error {
		tx.SetNX(ctx, s.EpochKey(goodsID), 0, 0)
		tx.XGroupCreateMkStream(ctx, s.StreamKey(goodsID), StreamGroup, "0")
		return nil
	})
	if err != nil && !redis.HasErrorPrefix(err, "BUSYGROUP") {
		return err
	}
	// If the index cannot be written, the item is sold nevertheless: the replica knows that it has a stream.
	_ = s.IndexStreams(ctx, goodsID)
	return ctx.Err()
}
