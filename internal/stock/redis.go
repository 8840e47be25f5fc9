package stock

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// redisStore keeps the stock in a string key of decimal digits.
type redisStore struct{ client redis.UniversalClient }

// redisKey has braces around the id: all keys of one goods then share a slot of Redis Cluster.
func redisKey(goodsID int64) string { return "stock:{" + strconv.FormatInt(goodsID, 10) + "}" }

// epochKey is where the stock's epoch is: none stands for 0.
func epochKey(goodsID int64) string { return redisKey(goodsID) + ":epoch" }

func (s redisStore) read(ctx context.Context, goodsID int64) (int64, error) {
	units, err := s.client.Get(ctx, redisKey(goodsID)).Int64()
	if errors.Is(err, redis.Nil) {
		return 0, fmt.Errorf("%w: goods %d is not in Redis", ErrUnknownGoods, goodsID)
	}
	if err != nil {
		return 0, redisUnwritten(err)
	}
	return units, nil
}

// write runs apart from ctx once it begins, as mysqlStore.exec does; the client's read timeout bounds it.
func (s redisStore) write(ctx context.Context, goodsID, units int64) error {
	if err := ctx.Err(); err != nil {
		return interrupted(context.Cause(ctx))
	}
	err := s.client.SetArgs(context.WithoutCancel(ctx), redisKey(goodsID), units, redis.SetArgs{Mode: "XX"}).Err()
	if errors.Is(err, redis.Nil) {
		return fmt.Errorf("%w: goods %d is not in Redis", ErrUnknownGoods, goodsID)
	}
	return redisWritten(err)
}

//go:embed lua/set.lua
var setLua string

var setScript = redis.NewScript(setLua)

// set does nothing where the stock of a later epoch has been set already, and returns that one.
func (s redisStore) set(ctx context.Context, goodsID, units, epoch int64) (int64, error) {
	keys := []string{redisKey(goodsID), fenceKey(goodsID), epochKey(goodsID)}
	epoch, err := setScript.Run(ctx, s.client, keys, units, epoch).Int64()
	return epoch, redisWritten(err)
}

// redisPoolFull says that no connection was free in time.
func redisPoolFull(err error) bool {
	return errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted)
}

// redisUnwritten classifies an error of a command that changes nothing.
func redisUnwritten(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), redisPoolFull(err):
		return fmt.Errorf("%w: Redis did not answer in time: %w", ErrBusy, err)
	}
	return fmt.Errorf("%w: Redis: %w", ErrUnavailable, err)
}

// redisWritten classifies an error of a command that writes.
func redisWritten(err error) error {
	var dial *net.OpError
	var reply redis.Error
	switch {
	case err == nil:
		return nil
	case redisPoolFull(err), errors.As(err, &reply), errors.As(err, &dial) && dial.Op == "dial":
		// No connection, so nothing was sent; or Redis itself refused the command.
		return redisUnwritten(err)
	}
	return fmt.Errorf("%w: Redis did not reply: %w", ErrUnknown, err)
}
