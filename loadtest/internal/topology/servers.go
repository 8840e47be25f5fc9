package topology

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"stock/internal/servers"
	"stock/loadtest/internal/tenant"
)

// database is the name of the service's database.
const database = "stock"

// startServers starts the stores and the lock servers, and finds the service's binary meanwhile.
func (t *Topology) startServers(ctx context.Context, o Options) error {
	t.Servers.Redlock = make([]*servers.Redis, o.Redlock)
	var noEtcd, noZooKeeper error
	var rented [2]error

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		t.StockBinary, err = t.findStock(ctx, o.StockBinary)
		return err
	})
	group.Go(func() error {
		if o.User.MySQLDSN == "" {
			return t.startMySQL(ctx, o)
		}
		rented[0] = t.rentMySQL(ctx, o)
		return rented[0]
	})
	group.Go(func() error {
		if len(o.User.Redis) == 0 {
			return t.startRedis(ctx, o)
		}
		rented[1] = t.rentRedis(ctx, o)
		return rented[1]
	})
	for i := range t.Servers.Redlock {
		group.Go(func() (err error) {
			name := "redlock-" + strconv.Itoa(i+1)
			t.Servers.Redlock[i], err = servers.StartRedis(ctx, servers.RedisOptions{
				Name: name, AOF: true, Args: o.User.redlockArgs(),
			})
			return err
		})
	}
	group.Go(func() error {
		noEtcd = t.startEtcd(ctx, o)
		return unlessMissing(noEtcd)
	})
	group.Go(func() error {
		t.Servers.ZooKeeper, noZooKeeper = servers.StartZooKeeper(ctx, servers.ZooKeeperOptions{Relaxed: o.Relaxed})
		return unlessMissing(noZooKeeper)
	})
	if err := group.Wait(); err != nil {
		for _, other := range rented {
			if !errors.Is(err, other) { // group returns the first error only
				err = errors.Join(err, tenant.Left(other))
			}
		}
		return err
	}
	t.describeServers()
	t.Missing = map[string]string{}
	if o.Redlock == 0 {
		t.Missing["redlock"] = noRedlock
	}
	for name, err := range map[string]error{"etcd": noEtcd, "zookeeper": noZooKeeper} {
		if err != nil {
			t.Missing[name] = err.Error()
		}
	}
	return nil
}

// unlessMissing returns the error of an optional server, unless that is not installed.
func unlessMissing(err error) error {
	if errors.Is(err, servers.ErrNotInstalled) {
		return nil
	}
	return err
}

func (t *Topology) startMySQL(ctx context.Context, o Options) (err error) {
	switch t.tidb = o.TiDB != ""; {
	case t.tidb:
		t.Servers.MySQL, err = servers.StartTiDB(ctx, o.TiDB)
	default:
		// The usual limit has room for two replicas and the lab.
		connections := servers.MySQLConnections + max(o.Replicas-2, 0)*replicaConnections
		t.Servers.MySQL, err = servers.StartMySQL(ctx, servers.MySQLOptions{
			Relaxed: o.Relaxed, Args: []string{"--max-connections=" + strconv.Itoa(connections)},
		})
	}
	if err != nil {
		return err
	}
	t.MySQLDSN, err = t.Servers.MySQL.CreateDatabase(ctx, database)
	return err
}

func (t *Topology) startRedis(ctx context.Context, o Options) (err error) {
	if o.RedisCluster {
		t.Servers.RedisCluster, err = servers.StartRedisCluster(ctx, servers.RedisClusterOptions{
			Replicas: o.RedisReplica, AOF: true,
			NodeTimeout: 15 * time.Second, // the server's own default: nobody fails here, but the machine may be busy
		})
		if err != nil {
			return err
		}
	}
	t.Servers.Redis, err = servers.StartRedis(ctx, servers.RedisOptions{AOF: true})
	if err != nil || !o.RedisReplica {
		return err
	}
	replica := servers.RedisOptions{Name: "redis-replica", ReplicaOf: t.Servers.Redis.Addr}
	t.Servers.Replica, err = servers.StartRedis(ctx, replica)
	return err
}

func (t *Topology) startEtcd(ctx context.Context, o Options) (err error) {
	member := servers.EtcdOptions{Relaxed: o.Relaxed}
	if o.EtcdMembers == 3 {
		t.Servers.EtcdCluster, err = servers.StartEtcdCluster(ctx, servers.EtcdClusterOptions{Member: member})
		return err
	}
	t.Servers.Etcd, err = servers.StartEtcd(ctx, member)
	return err
}

// redisServers lists the servers of Redis, nil for those that were not started.
func (t *Topology) redisServers() []*servers.Redis {
	all := append([]*servers.Redis{t.Servers.Redis, t.Servers.Replica}, t.Servers.Redlock...)
	if cluster := t.Servers.RedisCluster; cluster != nil {
		all = slices.Concat(all, cluster.Masters, cluster.Replicas)
	}
	return all
}

// etcdMembers lists the members of etcd that were started.
func (t *Topology) etcdMembers() []*servers.Etcd {
	if cluster := t.Servers.EtcdCluster; cluster != nil {
		return cluster.Members
	}
	return []*servers.Etcd{t.Servers.Etcd}
}

// describeServers copies addresses and versions of the servers to the exported fields.
func (t *Topology) describeServers() {
	for _, master := range t.Servers.Redlock {
		t.Redlock = append(t.Redlock, master.Addr)
	}
	if mysql := t.Servers.MySQL; mysql != nil {
		t.Environment.MySQLSettings = mysql.Settings
	}
	if redis := t.Servers.Redis; redis != nil {
		t.Redis = []string{redis.Addr}
		if cluster := t.Servers.RedisCluster; cluster != nil {
			t.Redis = cluster.Addrs
		}
	}
	if etcd := t.Servers.Etcd; etcd != nil {
		t.Etcd, t.Environment.Etcd = []string{etcd.Addr}, etcd.Version
	}
	if cluster := t.Servers.EtcdCluster; cluster != nil {
		t.Etcd, t.Environment.Etcd = cluster.Addrs, cluster.Members[0].Version+" of 3 members"
	}
	if zookeeper := t.Servers.ZooKeeper; zookeeper != nil {
		t.ZooKeeper, t.Environment.ZooKeeper = []string{zookeeper.Addr}, zookeeper.Version
	}
}
