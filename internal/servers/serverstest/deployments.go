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

// Sentinel is a Redis master with one replica, watched by one Sentinel, which promotes the replica 1 s after the master
// stopped to answer, or at once when told so (SENTINEL FAILOVER).
//
// It is as many as a test needs: a quorum of one. A deployment has three Sentinels or more.
type Sentinel struct {
	MasterName    string   // what the Sentinel calls the group
	SentinelAddrs []string // host:port
	Master        *servers.Redis
	Replica       *servers.Redis
	Sentinel      *servers.Redis
}

// StartSentinel starts a group for this test alone, and waits until the Sentinel knows the replica, and the replica has
// all that the master has.
func StartSentinel(t testing.TB) *Sentinel {
	t.Helper()
	const name = "stock"
	// Without the delay the replica's first copy comes at once.
	master := StartRedis(t, servers.RedisOptions{Name: "master", Args: []string{"--repl-diskless-sync-delay", "0"}})
	host, port, err := net.SplitHostPort(master.Addr)
	if err != nil {
		t.Fatal(err)
	}
	replica := StartRedis(t, servers.RedisOptions{
		Name: "replica", Args: []string{"--replicaof", host + " " + port, "--repl-diskless-sync-delay", "0"},
	})
	// A Sentinel asks the master for its replicas when it starts, and then only every 10 s.
	await(t, master.Addr, "the replica follows", func(ctx context.Context, client *redis.Client) error {
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
		// The link's state is known once the replica has told of it. One that has not could not be promoted.
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

// Cluster is a Redis Cluster of three masters without replicas: while one is down, its third of the slots is.
type Cluster struct {
	Addrs   []string // host:port
	Masters []*servers.Redis
}

// slots is how many Redis Cluster has.
const slots = 16384

// StartCluster starts a cluster for this test alone, and waits until each master knows that all slots are served.
func StartCluster(t testing.TB) *Cluster {
	t.Helper()
	cluster := new(Cluster)
	var buses []int
	for i := range 3 {
		bus, err := servers.FreePort() // Redis's own choice, 10000 above the other port, may not exist
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
	for i, addr := range cluster.Addrs {
		client := redis.NewClient(&redis.Options{Addr: addr})
		defer client.Close()
		// Epochs that differ from the start spare the masters the time to settle who has which.
		commands := [][]any{
			{"CLUSTER", "SET-CONFIG-EPOCH", i + 1},
			{"CLUSTER", "ADDSLOTSRANGE", i * slots / 3, (i+1)*slots/3 - 1},
		}
		for other, addr := range cluster.Addrs[:i] {
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
	for _, addr := range cluster.Addrs {
		await(t, addr, "the cluster is whole", func(ctx context.Context, client *redis.Client) error {
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

// await asks a Redis server until it gets no error. It fails the test after a minute.
func await(t testing.TB, addr, what string, ask func(context.Context, *redis.Client) error) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for {
		err := ask(ctx, client)
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
