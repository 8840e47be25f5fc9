package locks

import (
	"context"
	"crypto/tls"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed lua/release.lua
	releaseLua string
	//go:embed lua/renew.lua
	renewLua string

	releaseScript = redis.NewScript(releaseLua)
	renewScript   = redis.NewScript(renewLua)
)

// redisLock is what the locks of the Redis ladder share: how they ask for a key, wait for it, renew it and release it.
type redisLock struct {
	client  redis.UniversalClient
	options Options
	undos   *undoer
}

func newRedisLock(client redis.UniversalClient, options Options) redisLock {
	options = options.withDefaults()
	return redisLock{client: client, options: options, undos: newUndoer(options.Lease)}
}

// Close stops the background retries of failed Locks and Unlocks. A lock that is not released by then lasts until its
// lease ends.
func (l *redisLock) Close() error {
	l.undos.close()
	return nil
}

// redisMasters are the same lock on several independent masters.
type redisMasters []redisLock

func newRedisMasters(clients []redis.UniversalClient, options Options) (masters redisMasters) {
	for _, client := range clients {
		masters = append(masters, newRedisLock(client, options))
	}
	return masters
}

// Close stops the background retries of failed Locks and Unlocks. What is not released by then lasts until its lease
// ends.
func (l redisMasters) Close() error {
	for _, master := range l {
		master.undos.close()
	}
	return nil
}

// setNX sets key to value unless the key exists. The key expires after lease, or never if lease is 0.
func setNX(
	ctx context.Context, client redis.Cmdable, key, value string, lease time.Duration,
) (granted bool, err error) {
	err = client.SetArgs(ctx, key, value, redis.SetArgs{Mode: "NX", TTL: lease}).Err()
	if errors.Is(err, redis.Nil) {
		return false, nil
	}
	return err == nil, err
}

// pollAs polls with SET NX PX until owner holds key.
func (l *redisLock) pollAs(
	ctx context.Context, key, owner string, undo func(context.Context) error,
) (sent time.Time, err error) {
	ask := func() (bool, error) { return setNX(ctx, l.client, key, owner, l.options.Lease) }
	return l.await(ctx, key, request{ask: ask, undo: undo, wait: l.options.poll})
}

// await is request.await for Redis.
func (l *redisLock) await(ctx context.Context, key string, r request) (sent time.Time, err error) {
	r.notDone = func(err error) bool { return notDone(l.client, err) }
	return r.await(ctx, key, l.undos)
}

// keepAlive renews the lease of owner in the background.
func (l *redisLock) keepAlive(lease *Lease, key, owner string) {
	lease.keepAlive(l.options, func(ctx context.Context) error { return l.renew(ctx, key, owner) })
}

// renew starts the lease of owner anew.
func (l *redisLock) renew(ctx context.Context, key, owner string) error {
	switch renewed, err := renewScript.Run(ctx, l.client, []string{key}, owner, l.options.Lease.Milliseconds()).Int(); {
	case err != nil:
		return fmt.Errorf("renew %s: %w", key, err)
	case renewed == 0:
		return fmt.Errorf("renew %s: %w", key, ErrLeaseLost)
	}
	return nil
}

// deleteAny deletes key, whoever holds it.
func (l *redisLock) deleteAny(key string) releaseFunc {
	return func(ctx context.Context) (ours bool, err error) {
		deleted, err := l.client.Del(ctx, key).Result()
		return deleted == 1, err
	}
}

// deleteOwned deletes key if owner holds it.
func (l *redisLock) deleteOwned(key, owner string) releaseFunc {
	return func(ctx context.Context) (ours bool, err error) {
		deleted, err := releaseScript.Run(ctx, l.client, []string{key}, owner).Int()
		return deleted == 1, err
	}
}

// unlock is releaseFunc.unlock for Redis.
func (l *redisLock) unlock(key string, release releaseFunc) func(context.Context) error {
	return release.unlock(key, l.undos)
}

// notDone reports whether err, the error of a command or script, proves that Redis did not carry it out.
func notDone(client redis.UniversalClient, err error) bool {
	if !sendsOnce(client) {
		return false // err is that of the last attempt, and an earlier one may have been carried out
	}
	return notConnected(err) || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) ||
		slices.ContainsFunc(refusals, func(prefix string) bool { return redis.HasErrorPrefix(err, prefix) })
}

// notConnected reports whether err says that there is no connection to Redis.
func notConnected(err error) bool {
	dial, isNet := errors.AsType[*net.OpError](err)
	_, distrusted := errors.AsType[*tls.CertificateVerificationError](err)
	return isNet && dial.Op == "dial" || distrusted || errors.Is(err, redis.ErrClosed)
}

// refusals are the prefixes of the errors with which Redis refuses a command, or the first write of a script. After
// any other error, a script may have written before it failed.
var refusals = []string{
	"LOADING ", "READONLY ", "MASTERDOWN ", "CLUSTERDOWN ", "MOVED ", "ASK ", "TRYAGAIN ", "NOAUTH ", "WRONGPASS ",
	"OOM ", "MISCONF ", "NOREPLICAS ", "BUSY ", "max number of clients reached",
}

// sendsOnce reports whether client sends each command at most once. A client of another type may send it again.
func sendsOnce(client redis.UniversalClient) bool {
	switch client := client.(type) {
	case *redis.Client:
		return client.Options().MaxRetries <= 0
	case *redis.ClusterClient:
		o := client.Options()
		return o.MaxRedirects <= 0 && o.MaxRetries <= 0 // a retry within a node, and one on the Cluster
	}
	return false
}

// sibling names another key of the lock on key, in the same hash slot of Redis Cluster: it keeps the hash tag of key,
// or makes all of key the tag if it has none. Keys with braces that form no tag, such as a}b or {}a, have no sibling
// in their hash slot and do not work on a cluster.
func sibling(key, suffix string) string {
	if open := strings.IndexByte(key, '{'); open >= 0 && strings.IndexByte(key[open:], '}') > 1 {
		return key + suffix
	}
	return "{" + key + "}" + suffix
}
