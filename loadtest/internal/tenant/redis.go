package tenant

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"stock/loadtest/internal/oracle"
)

// Keys are the keys of the lab's own: all that begin with a prefix.
type Keys struct {
	Prefix   string
	Replicas bool // each master has a Redis replica
	// Warnings say which settings of the server the claims rely on and do not find.
	Warnings []string

	addresses string
	client    redis.UniversalClient
}

// CreateKeys connects to a server, or a Cluster, that somebody else uses. It makes sure that the account may write keys
// with the prefix.
func CreateKeys(ctx context.Context, addresses []string, account oracle.Account, prefix string) (*Keys, error) {
	options := account.RedisOptions(addresses...)
	options.DisableIdentity, options.DialTimeout, options.ContextTimeoutEnabled = true, connectTime, true
	options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	k := &Keys{Prefix: prefix, addresses: strings.Join(addresses, ","), client: redis.NewUniversalClient(options)}
	err := k.connect(ctx, len(addresses), account.RedisTLS != nil)
	if err == nil {
		err = k.client.Set(ctx, prefix+"lab", "", patience).Err()
	}
	if redis.HasErrorPrefix(err, "NOPERM") {
		err = fmt.Errorf("the account may not use keys that begin with %s: an administrator can permit it: ACL SETUSER "+
			"USER ~%[1]s* &%[1]s* +@all -@dangerous +info: %[2]w", Names, err)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("use Redis at %s: %w", k.addresses, err), k.client.Close())
	}
	return k, nil
}

func (k *Keys) connect(ctx context.Context, addresses int, secure bool) error {
	pinging, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	if err := k.client.Ping(pinging).Err(); err != nil {
		if redis.HasErrorPrefix(err, "NOAUTH") || redis.HasErrorPrefix(err, "WRONGPASS") {
			return errors.New("it refuses the user or the password: check LOADTEST_REDIS_PASSWORD, and --redis-user " +
				"unless it is the default user's")
		}
		if secure && errors.Is(err, context.DeadlineExceeded) {
			// Without TLS, Redis takes the handshake for a command that is not finished.
			return fmt.Errorf("connect: is it running, and is this its port for TLS? %w", err)
		}
		return fmt.Errorf("connect: %w", unreachable(err))
	}
	return k.look(ctx, addresses)
}

// look reads what the claims rely on.
func (k *Keys) look(ctx context.Context, addresses int) error {
	var mu sync.Mutex
	k.Replicas = true
	return k.masters(ctx, func(ctx context.Context, master *redis.Client) error {
		info, err := master.InfoMap(ctx).Result()
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		if info["Cluster"]["cluster_enabled"] == "1" && addresses == 1 {
			return errors.New("it belongs to a Redis Cluster: --redis needs at least two of its members")
		}
		if info["Replication"]["role"] != "master" {
			return errors.New("it is a Redis replica, and takes no writes: --redis needs the master")
		}
		k.Replicas = k.Replicas && info["Replication"]["connected_slaves"] != "0"
		if policy := info["Memory"]["maxmemory_policy"]; policy != "noeviction" && info["Memory"]["maxmemory"] != "0" {
			k.Warnings = append(k.Warnings, fmt.Sprintf("Redis has maxmemory-policy %s: when its memory is full, it deletes "+
				"keys, and with them locks and stock", policy))
		}
		return nil
	})
}

// Remove deletes all keys with the prefix, also after an interrupt. It must be called after all users of the keys have
// ended. It scans the key space once, however long that takes, and fails when Redis does not answer for some seconds.
func (k *Keys) Remove(ctx context.Context) error {
	err := k.masters(context.WithoutCancel(ctx), func(ctx context.Context, master *redis.Client) error {
		for cursor := uint64(0); ; {
			next, err := k.removeSome(ctx, master, cursor)
			if cursor = next; err != nil || cursor == 0 {
				return err
			}
		}
	})
	if err != nil {
		err = fmt.Errorf("keys that begin with %s are still on Redis at %s: %w", k.Prefix, k.addresses, err)
	}
	return errors.Join(err, k.client.Close())
}

// removeSome removes the keys of a part of the key space. SCAN blocks no other client for long, however many keys there
// are.
func (k *Keys) removeSome(ctx context.Context, master *redis.Client, cursor uint64) (next uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	keys, next, err := master.Scan(ctx, cursor, k.Prefix+"*", 1000).Result()
	if err != nil || len(keys) == 0 {
		return next, err
	}
	_, err = master.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, key := range keys { // one by one: in a Cluster, they are in different hash slots
			pipe.Unlink(ctx, key)
		}
		return nil
	})
	return next, err
}

// masters calls do for each master of a Cluster, or for the only one.
func (k *Keys) masters(ctx context.Context, do func(context.Context, *redis.Client) error) error {
	switch client := k.client.(type) {
	case *redis.ClusterClient:
		return client.ForEachMaster(ctx, do)
	case *redis.Client:
		return do(ctx, client)
	}
	return fmt.Errorf("unexpected client %T", k.client)
}
