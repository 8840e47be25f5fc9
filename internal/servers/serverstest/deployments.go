package serverstest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/internal/servers"
)

// Sentinel is a Redis master with one replica and one Sentinel. The Sentinel promotes the replica one second after the
// master has stopped answering, or at once on SENTINEL FAILOVER.
//
// A single Sentinel is enough for tests; deployments have at least three.
type Sentinel struct {
	MasterName    string   // name of the group
	SentinelAddrs []string // host:port
	Master        *servers.Redis
	Replica       *servers.Redis
	Sentinel      *servers.Redis
}

// StartSentinel starts a group for this test alone. It waits until the replica is in sync with the master and the
// Sentinel could promote it.
func StartSentinel(t testing.TB) *Sentinel {
	t.Helper()
	const name = "stock"
	// By default, the master delays the first synchronization.
	master := StartRedis(t, servers.RedisOptions{Name: "master", Args: []string{"--repl-diskless-sync-delay", "0"}})
	host, port, err := net.SplitHostPort(master.Addr)
	if err != nil {
		t.Fatal(err)
	}
	replica := StartRedis(t, servers.RedisOptions{
		Name: "replica", Args: []string{"--replicaof", host + " " + port, "--repl-diskless-sync-delay", "0"},
	})
	// The replica must be known to the master when the Sentinel starts: it asks for replicas every 10 s only.
	await(t, master.Addr, "the replica is online", func(ctx context.Context, client *redis.Client) error {
		replication, err := client.Info(ctx, "replication").Result()
		if err == nil && !strings.Contains(replication, "state=online") {
			err = errors.New(replication)
		}
		return err
	})
	sentinel := StartRedis(t, servers.RedisOptions{
		Name: "sentinel",
		Config: fmt.Sprintf("sentinel monitor %[1]s %[2]s %[3]s 1\n"+
			"sentinel down-after-milliseconds %[1]s 1000\n"+
			"sentinel failover-timeout %[1]s 5000\n", name, host, port),
		Args: []string{"--sentinel"},
	})
	await(t, sentinel.Addr, "the Sentinel can fail over", func(ctx context.Context, client *redis.Client) error {
		// The Sentinel promotes only a replica that has reported its link to the master.
		replicas := redis.NewMapStringStringSliceCmd(ctx, "SENTINEL", "REPLICAS", name)
		err := client.Process(ctx, replicas)
		if list := replicas.Val(); err == nil &&
			(len(list) != 1 || list[0]["flags"] != "slave" || list[0]["master-link-status"] != "ok") {
			err = fmt.Errorf("the replicas are %v", list)
		}
		return err
	})
	return &Sentinel{
		MasterName: name, SentinelAddrs: []string{sentinel.Addr},
		Master: master, Replica: replica, Sentinel: sentinel,
	}
}

// Cluster is a Redis Cluster of three masters without replicas. While a master is down, its hash slots are too.
type Cluster struct {
	Addrs   []string // host:port
	Masters []*servers.Redis
}

// hashSlots is the number of hash slots of any Redis Cluster.
const hashSlots = 16384

// StartCluster starts a cluster for this test alone, and waits until each master knows that all hash slots are served.
func StartCluster(t testing.TB) *Cluster {
	t.Helper()
	cluster := new(Cluster)
	var buses []int
	for i := range 3 {
		bus, err := servers.FreePort() // the default, 10000 above the other port, may be out of range
		if err != nil {
			t.Fatal(err)
		}
		master := StartRedis(t, servers.RedisOptions{Name: "cluster-" + strconv.Itoa(i+1), Args: []string{
			"--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(bus), "--cluster-node-timeout", "2000",
		}})
		buses = append(buses, bus)
		cluster.Masters = append(cluster.Masters, master)
		cluster.Addrs = append(cluster.Addrs, master.Addr)
	}
	for i := range cluster.Addrs {
		cluster.join(t, i, buses)
	}
	for _, addr := range cluster.Addrs {
		await(t, addr, "the cluster is complete", func(ctx context.Context, client *redis.Client) error {
			info, err := client.ClusterInfo(ctx).Result()
			if err != nil {
				return err
			}
			for _, line := range []string{"cluster_state:ok", "cluster_known_nodes:3", "cluster_size:3"} {
				if !strings.Contains(info, line) {
					return fmt.Errorf("%s is not in %s", line, info)
				}
			}
			return nil
		})
	}
	return cluster
}

// join gives master i its hash slots and introduces it to the masters before it.
func (c *Cluster) join(t testing.TB, i int, buses []int) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: c.Addrs[i]})
	defer client.Close()
	commands := [][]any{
		// With different epochs from the start, the masters need not resolve conflicts.
		{"CLUSTER", "SET-CONFIG-EPOCH", i + 1},
		{"CLUSTER", "ADDSLOTSRANGE", i * hashSlots / 3, (i+1)*hashSlots/3 - 1},
	}
	for other, addr := range c.Addrs[:i] {
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			t.Fatal(err)
		}
		commands = append(commands, []any{"CLUSTER", "MEET", host, port, buses[other]})
	}
	for _, command := range commands {
		if err := client.Do(t.Context(), command...).Err(); err != nil {
			t.Fatalf("%v: %v", command, err)
		}
	}
}

// await calls ready with a client of the server until it returns nil. It fails the test after a minute.
func await(t testing.TB, addr, what string, ready func(context.Context, *redis.Client) error) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for {
		err := ready(ctx, client)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("wait until %s: %v", what, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
