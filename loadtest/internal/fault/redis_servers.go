package fault

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"stock/internal/servers"
	"stock/internal/tcpproxy"
	"stock/loadtest/internal/scenario"
)

// redisServers is the Redis of a round that breaks it.
type redisServers struct {
	address   string // host:port at which clients find the master
	master    *servers.Redis
	replica   *servers.Redis         // a Redis replica of the master; nil: there is none
	front     *tcpproxy.Proxy        // in front of the master; nil: there is none
	link      *tcpproxy.Proxy        // between the master and its Redis replica; nil: there is none
	sentinels *servers.RedisSentinel // of both; nil: there are none
	cluster   *servers.RedisCluster  // to which both belong; nil: to none

	// Of failOverCluster.
	held         []func() // release what waits until the master has been killed
	killedNS     atomic.Int64
	othersDownNS atomic.Int64 // for how long another master refused its keys
}

// addresses lists where clients find Redis, host:port.
func (r *redisServers) addresses() []string {
	if r.cluster != nil {
		return r.cluster.Addrs
	}
	return []string{r.address}
}

// startRedis starts the servers of a round. If it fails, it returns those that it has started.
type startRedis func(context.Context) (*redisServers, error)

// onRedis deploys on a Redis of the round's own, with more arguments of "stock serve".
func onRedis(start startRedis, args ...string) func(context.Context, *Lab) (*Deployment, error) {
	return func(ctx context.Context, l *Lab) (*Deployment, error) {
		if err := l.sparesRedis(); err != nil {
			return nil, err
		}
		own, err := start(ctx)
		at := l.Topology.Addresses()
		at.Redis, at.RedisReplica = own.addresses(), own.replica != nil
		d, err := l.deployOn(ctx, at, own.stop, err, args...)
		if err == nil {
			d.redis = own
		}
		return d, err
	}
}

// onOwnRedis deploys on a Redis of the round's own, which keeps nothing on disk.
var onOwnRedis = onRedis(oneRedis(servers.RedisOptions{}))

// oneRedis starts a master alone.
func oneRedis(o servers.RedisOptions) startRedis {
	return func(ctx context.Context) (*redisServers, error) {
		o.Name = "redis of the round"
		master, err := servers.StartRedis(ctx, o)
		if err != nil {
			return &redisServers{}, err
		}
		return &redisServers{address: master.Addr, master: master}, nil
	}
}

// redisPair starts a master with a Redis replica. There is a proxy between the two, and one in front of the master.
func redisPair(ctx context.Context) (*redisServers, error) {
	r := &redisServers{}
	var err error
	if r.master, err = servers.StartRedis(ctx, servers.RedisOptions{Name: "master"}); err != nil {
		return r, err
	}
	if r.front, err = tcpproxy.Start(r.master.Addr); err != nil {
		return r, err
	}
	if r.link, err = tcpproxy.Start(r.master.Addr); err != nil {
		return r, err
	}
	r.address = r.front.Addr()
	o := servers.RedisOptions{Name: "Redis replica", ReplicaOf: r.link.Addr()}
	if r.replica, err = servers.StartRedis(ctx, o); err != nil {
		return r, err
	}
	return r, awaitReplica(ctx, r.master)
}

// awaitReplica waits until a master knows that its Redis replica is in sync, which the latter tells it once a second.
func awaitReplica(ctx context.Context, master *servers.Redis) error {
	client := openRedis(master.Addr)
	defer client.Close()
	replicas, err := client.Wait(ctx, 1, 20*time.Second).Result()
	if err == nil && replicas == 0 {
		err = fmt.Errorf("%s does not know of its Redis replica", master.Name)
	}
	return err
}

// redisWithSentinels starts a master with a Redis replica, which three Sentinels promote when the master is down.
func redisWithSentinels(ctx context.Context) (*redisServers, error) {
	group, err := servers.StartRedisSentinel(ctx, servers.RedisSentinelOptions{})
	if err != nil {
		return &redisServers{}, err
	}
	return &redisServers{
		address: group.Master.Addr, master: group.Master, replica: group.Replica, sentinels: group,
	}, nil
}

// stop stops what was started.
func (r *redisServers) stop(ctx context.Context) error {
	for _, proxy := range []*tcpproxy.Proxy{r.front, r.link} {
		if proxy != nil {
			proxy.Close()
		}
	}
	if r.sentinels != nil {
		return r.sentinels.Stop(ctx)
	}
	if r.cluster != nil {
		return r.cluster.Stop(ctx)
	}
	var errs []error
	for _, server := range []*servers.Redis{r.replica, r.master} {
		if server != nil {
			errs = append(errs, server.Stop(ctx))
		}
	}
	return errors.Join(errs...)
}

// promote makes the Redis replica the master, and leads its clients there.
func (r *redisServers) promote(ctx context.Context) error {
	if err := r.replica.Promote(ctx); err != nil {
		return err
	}
	r.front.Redirect(r.replica.Addr)
	return nil
}

// failOver kills the master, and promotes its Redis replica.
func (r *redisServers) failOver(ctx context.Context) error {
	r.master.Kill()
	return r.promote(ctx)
}

// stopServer stops a server of Redis (SIGSTOP), and waits until it has.
func stopServer(ctx context.Context, r *servers.Redis) error {
	if err := r.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return awaitStopped(ctx, r.Name, r.PID)
}

// keyInOneRedis applies to locks that are one key of Redis, and that need no Redis replica.
func keyInOneRedis(s scenario.Strategy) string {
	if slices.Contains(s.Needs, "redis-replica") {
		return "it is not granted without a Redis replica"
	}
	return keyInRedis(s)
}

// rejoin starts the old master again, as a Redis replica of the one that was promoted.
func (r *redisServers) rejoin(ctx context.Context) error {
	if err := r.master.Restart(ctx); err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(r.replica.Addr)
	if err != nil {
		return err
	}
	client := openRedis(r.master.Addr)
	defer client.Close()
	if err := client.Do(ctx, "REPLICAOF", host, port).Err(); err != nil {
		return err
	}
	return awaitReplica(ctx, r.replica)
}

// noKey is the PTTL of a key that does not exist.
const noKey = time.Duration(-2)

// lockPTTL is how long the item's lock lasts on a server of Redis, as PTTL tells it.
func (s *Stage) lockPTTL(ctx context.Context, at *servers.Redis) (time.Duration, error) {
	client := openRedis(at.Addr)
	defer client.Close()
	return client.PTTL(ctx, s.lockKey()).Result()
}
