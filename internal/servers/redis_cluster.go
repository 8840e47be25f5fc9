package servers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// RedisClusterOptions configures StartRedisCluster.
type RedisClusterOptions struct {
	Replicas bool // whether each master has a Redis replica, which takes its place when it is down
	TLS      *TLS // for clients, on a second port of each server, and between the servers; without TLS if nil
	AOF      bool // whether each server writes an append-only file
	// NodeTimeout is how long a server may be silent until it counts as down; 0: 2 s.
	NodeTimeout time.Duration
}

// RedisCluster is a Redis Cluster of three masters. While a master is down, its hash slots are too, unless a Redis
// replica takes its place.
type RedisCluster struct {
	Addrs    []string // of the masters, host:port
	TLSAddrs []string // of the masters, host:port for TLS; empty strings without
	Masters  []*Redis
	Replicas []*Redis // of the masters, in their order; none without the option

	buses []string // the port of each server for the others, first those of the masters
}

const (
	clusterMasters = 3
	hashSlots      = 16384           // of any Redis Cluster
	nodeTimeout    = 2 * time.Second // the default of RedisClusterOptions.NodeTimeout
)

// StartRedisCluster starts a cluster. It waits until every server knows who serves each hash slot, and each Redis
// replica is in sync.
func StartRedisCluster(ctx context.Context, o RedisClusterOptions) (*RedisCluster, error) {
	c := new(RedisCluster)
	if err := c.start(ctx, o); err != nil {
		return nil, errors.Join(err, c.Stop(ctx))
	}
	return c, nil
}

func (c *RedisCluster) start(ctx context.Context, o RedisClusterOptions) error {
	for i := range clusterMasters {
		master, err := c.startServer(ctx, "master-"+strconv.Itoa(i+1), o)
		if err != nil {
			return err
		}
		c.Masters, c.Addrs = append(c.Masters, master), append(c.Addrs, master.Addr)
		c.TLSAddrs = append(c.TLSAddrs, master.TLSAddr)
		if err := c.serve(ctx, i); err != nil {
			return err
		}
	}
	for i, master := range c.Masters {
		if !o.Replicas {
			break
		}
		replica, err := c.startServer(ctx, "replica-"+strconv.Itoa(i+1), o)
		if err != nil {
			return err
		}
		c.Replicas = append(c.Replicas, replica)
		if err := c.replicate(ctx, replica, master); err != nil {
			return err
		}
	}
	for _, server := range c.servers() {
		if err := server.await(ctx, c.complete); err != nil {
			return err
		}
	}
	return nil
}

func (c *RedisCluster) servers() []*Redis { return slices.Concat(c.Masters, c.Replicas) }

// startServer starts a server that knows no other.
func (c *RedisCluster) startServer(ctx context.Context, name string, o RedisClusterOptions) (*Redis, error) {
	bus, err := FreePort() // the default, 10000 above the other port, may be out of range
	if err != nil {
		return nil, err
	}
	c.buses = append(c.buses, strconv.Itoa(bus))
	timeout := cmp.Or(o.NodeTimeout, nodeTimeout)
	args := []string{
		"--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(bus),
		"--cluster-node-timeout", strconv.FormatInt(timeout.Milliseconds(), 10),
	}
	if o.TLS != nil {
		args = append(args, "--tls-cluster", "yes", "--tls-replication", "yes")
	}
	return StartRedis(ctx, RedisOptions{Name: name, AOF: o.AOF, TLS: o.TLS, Args: args})
}

// serve gives master i its hash slots and introduces it to the masters before it.
func (c *RedisCluster) serve(ctx context.Context, i int) error {
	client := c.Masters[i].client()
	defer client.Close()
	// With different epochs from the start, the masters need not resolve conflicts.
	if err := client.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(); err != nil {
		return fmt.Errorf("set the epoch of %s: %w", c.Masters[i].Name, err)
	}
	first, last := i*hashSlots/clusterMasters, (i+1)*hashSlots/clusterMasters-1
	if err := client.ClusterAddSlotsRange(ctx, first, last).Err(); err != nil {
		return fmt.Errorf("give %s its hash slots: %w", c.Masters[i].Name, err)
	}
	return c.meet(ctx, client, c.Masters[:i])
}

// meet introduces a server to masters.
func (c *RedisCluster) meet(ctx context.Context, client *redis.Client, masters []*Redis) error {
	for i, master := range masters {
		host, port, err := net.SplitHostPort(master.Addr)
		if err != nil {
			return err
		}
		if err := client.Do(ctx, "CLUSTER", "MEET", host, port, c.buses[i]).Err(); err != nil {
			return fmt.Errorf("introduce a server to %s: %w", master.Name, err)
		}
	}
	return nil
}

// replicate makes the server a Redis replica of the master and waits until it is in sync.
func (c *RedisCluster) replicate(ctx context.Context, replica, master *Redis) error {
	of := master.client()
	defer of.Close()
	id, err := of.ClusterMyID(ctx).Result()
	if err != nil {
		return fmt.Errorf("ask %s for its ID: %w", master.Name, err)
	}
	client := replica.client()
	defer client.Close()
	if err := c.meet(ctx, client, c.Masters); err != nil {
		return err
	}
	// Until it has met the master, it answers that it does not know the ID.
	err = replica.await(ctx, func(ctx context.Context, client *redis.Client) error {
		return client.ClusterReplicate(ctx, id).Err()
	})
	if err != nil {
		return err
	}
	return replica.AwaitSync(ctx)
}

// complete returns an error unless the server knows all servers and their roles, and that all hash slots are served.
//
// It does not ask for CLUSTER SLOTS, which conceals a Redis replica until its master has first pinged it, after 10 s.
func (c *RedisCluster) complete(ctx context.Context, client *redis.Client) error {
	info, err := client.ClusterInfo(ctx).Result()
	if err != nil {
		return err
	}
	all := "cluster_known_nodes:" + strconv.Itoa(len(c.servers()))
	if err := hasLines(info, "cluster_state:ok", all); err != nil {
		return err
	}
	nodes, err := client.ClusterNodes(ctx).Result()
	if err == nil && strings.Count(nodes, "slave ") != len(c.Replicas) {
		err = fmt.Errorf("it does not know %d Redis replicas: %s", len(c.Replicas), nodes)
	}
	return err
}

// AwaitPromotion waits until every server that runs takes the Redis replica of master i for the master of its slots.
func (c *RedisCluster) AwaitPromotion(ctx context.Context, i int) error {
	promoted := regexp.MustCompile(" " + regexp.QuoteMeta(c.Replicas[i].Addr) + "@[^ ]+ (myself,)?master ")
	knows := func(ctx context.Context, client *redis.Client) error {
		nodes, err := client.ClusterNodes(ctx).Result()
		if err == nil && !promoted.MatchString(nodes) {
			err = fmt.Errorf("%s is not a master: %s", c.Replicas[i].Name, nodes)
		}
		if err != nil {
			return err
		}
		info, err := client.ClusterInfo(ctx).Result()
		if err != nil {
			return err
		}
		return hasLines(info, "cluster_state:ok")
	}
	for _, server := range c.servers() {
		if server.Err() != nil {
			continue // it does not run
		}
		if err := server.await(ctx, knows); err != nil {
			return err
		}
	}
	return nil
}

// ClusterMaster returns the index of the master that has a key when a RedisCluster starts.
func ClusterMaster(key string) int {
	slot := hashSlot(key)
	for i := range clusterMasters {
		if slot < (i+1)*hashSlots/clusterMasters {
			return i
		}
	}
	return clusterMasters - 1
}

// hashSlot returns the hash slot of a key: CRC16 (XMODEM) of what the first braces enclose, or of the whole key.
// See https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/.
func hashSlot(key string) int {
	if _, after, found := strings.Cut(key, "{"); found {
		if tag, _, closed := strings.Cut(after, "}"); closed && tag != "" {
			key = tag
		}
	}
	var crc uint16
	for i := range len(key) {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			carry := crc&0x8000 != 0
			crc <<= 1
			if carry {
				crc ^= 0x1021
			}
		}
	}
	return int(crc) % hashSlots
}

// Stop kills the servers and removes their directories.
func (c *RedisCluster) Stop(ctx context.Context) error { return stopRedis(ctx, c.servers()...) }
