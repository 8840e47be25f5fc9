package tenant

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"stock/internal/access"
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
	stop      context.CancelFunc
	renewing  sync.WaitGroup
}

// connectTime is how long it may take to connect.
const connectTime = 5 * time.Second

// claimTime is how long a prefix is taken after its lab has died. The claim is renewed several times within it.
const claimTime = 20 * time.Second

// Keys of the lab itself.
const (
	claimKey  = "lab"        // expires unless the lab lives
	markerKey = "lab:marker" // does not expire: the prefix belongs to labs
)

// CreateKeys takes a prefix on a server, or a Cluster, that somebody else uses. Keys with the prefix are deleted if a
// lab left them behind that has died; otherwise they are left alone, and it fails.
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
		// What an interrupt leaves half done could not be told from the keys of others.
		err = k.create(context.WithoutCancel(ctx))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("use Redis at %s: %w", k.addresses, err), k.client.Close())
	}
	renewing, stop := context.WithCancel(context.WithoutCancel(ctx))
	k.stop = stop
	k.renewing.Go(func() { k.renew(renewing) })
	if ctx.Err() != nil {
		return nil, errors.Join(ctx.Err(), k.Remove(context.WithoutCancel(ctx)))
	}
	return k, nil
}

func (k *Keys) connect(ctx context.Context, addresses int, secure bool) error {
	pinging, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	if err := k.client.Ping(pinging).Err(); err != nil {
		if redis.HasErrorPrefix(err, "NOAUTH") || redis.HasErrorPrefix(err, "WRONGPASS") {
			return errors.New("it refuses the user or the password: set LOADTEST_REDIS_PASSWORD, and --redis-user unless " +
				"it is the default user's")
		}
		if secure && errors.Is(err, context.DeadlineExceeded) { // Redis waits for the end of what it takes for a command
			return fmt.Errorf("connect: is it running, and is this its port for TLS? %w", err)
		}
		return fmt.Errorf("connect: is it running? %w", access.Explain(err))
	}
	return k.look(ctx, addresses)
}

func (k *Keys) create(ctx context.Context) error {
	err := k.client.SetArgs(ctx, k.Prefix+claimKey, k.owner, redis.SetArgs{Mode: "NX", TTL: claimTime}).Err()
	if errors.Is(err, redis.Nil) {
		return fmt.Errorf("another lab uses the key prefix %s, or was killed less than %v ago: wait until it has ended, or "+
			"choose another --name", k.Prefix, claimTime)
	}
	if err != nil {
		return fmt.Errorf("take the key prefix %s: %w", k.Prefix, err)
	}
	err = k.takeOver(ctx)
	if err != nil {
		err = errors.Join(err, k.client.Del(context.WithoutCancel(ctx), k.Prefix+claimKey).Err())
	}
	return err
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
	return k.client.Set(ctx, k.Prefix+markerKey, k.owner, 0).Err()
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

// renew keeps the claim until ctx ends.
func (k *Keys) renew(ctx context.Context) {
	ticker := time.NewTicker(claimTime / 5)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			_, _ = k.hold(ctx) // a failure is made up for by the next tick
		}
	}
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

// hold renews the claim. It returns false if another lab has taken the prefix.
func (k *Keys) hold(ctx context.Context) (held bool, err error) {
	return holdScript.Run(ctx, k.client, []string{k.Prefix + claimKey}, k.owner, claimTime.Milliseconds()).Bool()
}

// Remove deletes all keys with the prefix, and frees it. It must be called after all users of the keys have ended. If
// another lab has taken the prefix, because this one could not renew its claim, the keys are left to that lab.
func (k *Keys) Remove(ctx context.Context) error {
	k.stop()
	k.renewing.Wait()
	held, err := k.hold(ctx)
	if err == nil && !held {
		return errors.Join(fmt.Errorf("another lab has taken the key prefix %s on Redis at %s, because this one did not "+
			"reach Redis for %v: both runs are worthless", k.Prefix, k.addresses, claimTime), k.client.Close())
	}
	if err == nil {
		err = k.each(ctx, k.delete)
	}
	for _, last := range []string{markerKey, claimKey} { // a lab that dies in between leaves a key that expires
		if err == nil {
			err = k.client.Unlink(ctx, k.Prefix+last).Err()
		}
	}
	if err != nil {
		err = fmt.Errorf("keys that begin with %s are still on Redis at %s: run the lab with the same --name again to "+
			"remove them: %w", k.Prefix, k.addresses, err)
	}
	return errors.Join(err, k.client.Close())
}

// delete deletes keys other than the claim and the marker: without the marker, a lab that dies meanwhile would leave
// keys that no other lab removes.
func (k *Keys) delete(ctx context.Context, keys []string) error {
	for _, key := range keys { // one by one: in a Cluster, they are in different hash slots
		if key == k.Prefix+claimKey || key == k.Prefix+markerKey {
			continue
		}
		if err := k.client.Unlink(ctx, key).Err(); err != nil {
			return err
		}
	}
	return nil
}

// each passes the keys with the prefix to do, in portions. SCAN blocks no other client for long, however many keys
// there are.
func (k *Keys) each(ctx context.Context, do func(context.Context, []string) error) error {
	return k.masters(ctx, func(ctx context.Context, master *redis.Client) error {
		for cursor := uint64(0); ; {
			keys, next, err := master.Scan(ctx, cursor, k.Prefix+"*", 1000).Result()
			if err == nil {
				err = do(ctx, keys)
			}
			if cursor = next; err != nil || cursor == 0 {
				return err
			}
		}
	})
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
