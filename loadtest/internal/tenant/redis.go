package tenant

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

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
	owner     string
	claim
}

// connectTime is how long it may take to connect.
const connectTime = 5 * time.Second

// Keys of the lab itself.
const (
	claimKey  = "lab"        // expires unless the lab lives
	markerKey = "lab:marker" // does not expire: the prefix belongs to labs
)

// CreateKeys takes a prefix on a server, or a Cluster, that somebody else uses. Keys with the prefix are deleted if a
// lab left them behind that has died; otherwise they are left alone, and it fails. It scans the key space once.
func CreateKeys(ctx context.Context, addresses []string, account oracle.Account, prefix string) (*Keys, error) {
	options := account.RedisOptions(addresses...)
	options.DisableIdentity, options.DialTimeout, options.ContextTimeoutEnabled = true, connectTime, true
	options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	k := &Keys{
		Prefix: prefix, addresses: strings.Join(addresses, ","), owner: rand.Text(),
		client: redis.NewUniversalClient(options),
	}
	err := k.connect(ctx, len(addresses), account.RedisTLS != nil)
	if err == nil {
		err = k.create(ctx)
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

func (k *Keys) create(ctx context.Context) error {
	held, err := k.take(ctx)
	switch {
	case redis.HasErrorPrefix(err, "NOPERM"):
		return fmt.Errorf("the account may not use keys that begin with %[1]s: an administrator can permit it: ACL SETUSER "+
			"USER ~%[1]s* &%[1]s* +@all -@dangerous +info: %[2]w", k.Prefix, err)
	case err != nil:
		return fmt.Errorf("take the key prefix %q: %w", k.Prefix, err)
	case !held:
		return fmt.Errorf("another lab uses the key prefix %s, or was killed less than %v ago: wait until it has ended, or "+
			"choose another --name", k.Prefix, claimTime)
	}
	k.keep(ctx, k.hold) // the scan may take longer than a claim lasts
	if err := k.takeOver(ctx); err != nil {
		k.end()
		return errors.Join(err, k.release(ctx))
	}
	return nil
}

// takeOver deletes the keys that a dead lab has left. If there are keys and no marker, they are somebody else's.
func (k *Keys) takeOver(ctx context.Context) error {
	marked, err := k.client.Exists(ctx, k.Prefix+markerKey).Result()
	if err != nil {
		return err
	}
	var foreign string
	var mu sync.Mutex
	err = k.each(ctx, func(ctx context.Context, keys []string) error {
		if marked > 0 {
			return k.delete(ctx, keys)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, key := range keys {
			if key != k.Prefix+claimKey {
				foreign = key
			}
		}
		return nil
	})
	switch {
	case err != nil:
		return fmt.Errorf("look for keys that begin with %s: %w", k.Prefix, err)
	case foreign != "":
		return fmt.Errorf("there are keys that begin with %s and are not a lab's, such as %s: they are left alone; choose "+
			"another --name", k.Prefix, foreign)
	}
	if err := k.hold(ctx); err != nil {
		return err
	}
	// After an interrupt, it would not be known whether the marker is there.
	marking, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	return k.client.Set(marking, k.Prefix+markerKey, k.owner, 0).Err()
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

// holdScript sets the claim unless it is another lab's, and returns whether it has done so. A claim that has expired is
// taken again, as after a suspension of the host.
var holdScript = redis.NewScript(`
local owner = redis.call('GET', KEYS[1])
if owner and owner ~= ARGV[1] then
  return 0
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1`)

// take takes or renews the claim. It returns false if another lab has it.
func (k *Keys) take(ctx context.Context) (held bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return holdScript.Run(ctx, k.client, []string{k.Prefix + claimKey}, k.owner, claimTime.Milliseconds()).Bool()
}

// hold renews the claim. It returns a lostError if another lab has taken the prefix.
func (k *Keys) hold(ctx context.Context) error {
	held, err := k.take(ctx)
	if err == nil && !held {
		return lostError{fmt.Errorf("another lab has taken the key prefix %s on Redis at %s, because this one did not "+
			"reach Redis for %v: discard the results of both runs", k.Prefix, k.addresses, claimTime)}
	}
	return err
}

// releaseScript deletes the claim if it is this lab's.
var releaseScript = redis.NewScript(`
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('UNLINK', KEYS[1])
end
return 0`)

// release deletes the claim, also after an interrupt. It must not be called before the renewals have ended.
func (k *Keys) release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	return releaseScript.Run(ctx, k.client, []string{k.Prefix + claimKey}, k.owner).Err()
}

// Remove deletes all keys with the prefix, and frees it. It must be called after all users of the keys have ended. It
// scans the key space once, however long that takes, and fails when Redis does not answer for some seconds. If another
// lab has taken the prefix, because this one could not renew its claim, the keys are left to that lab.
func (k *Keys) Remove(ctx context.Context) error {
	err := k.clear(ctx)
	k.end()
	if err == nil {
		err = k.release(ctx)
	}
	if err != nil && !isLost(err) {
		err = fmt.Errorf("keys that begin with %s are still on Redis at %s: run the lab with the same --name again to "+
			"remove them: %w", k.Prefix, k.addresses, err)
	}
	if !isLost(err) { // the other lab may have ended meanwhile
		err = errors.Join(k.Loss(), err)
	}
	return errors.Join(err, k.client.Close())
}

// clear deletes everything but the claim, the marker last.
func (k *Keys) clear(ctx context.Context) error {
	err := k.hold(ctx)
	if err == nil {
		err = k.each(ctx, k.delete)
	}
	if err == nil {
		err = k.hold(ctx)
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return k.client.Unlink(ctx, k.Prefix+markerKey).Err()
}

// delete deletes keys other than the claim and the marker: without the marker, a lab that dies meanwhile would leave
// keys that no other lab removes.
func (k *Keys) delete(ctx context.Context, keys []string) error {
	keys = slices.DeleteFunc(keys, func(key string) bool { return key == k.Prefix+claimKey || key == k.Prefix+markerKey })
	if len(keys) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := k.hold(ctx); err != nil {
		return err
	}
	_, err := k.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, key := range keys { // one by one: in a Cluster, they are in different hash slots
			pipe.Unlink(ctx, key)
		}
		return nil
	})
	return err
}

// each passes the keys with the prefix to do, in portions. SCAN blocks no other client for long, however many keys
// there are.
func (k *Keys) each(ctx context.Context, do func(context.Context, []string) error) error {
	return k.masters(ctx, func(ctx context.Context, master *redis.Client) error {
		var cursor uint64
		for {
			keys, next, err := k.scan(ctx, master, cursor)
			if err == nil && len(keys) > 0 {
				err = do(ctx, keys)
			}
			if cursor = next; err != nil || cursor == 0 {
				return err
			}
		}
	})
}

func (k *Keys) scan(ctx context.Context, master *redis.Client, cursor uint64) (keys []string, next uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return master.Scan(ctx, cursor, k.Prefix+"*", 1000).Result()
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
