package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// RedisSentinelOptions configures StartRedisSentinel.
type RedisSentinelOptions struct {
	Sentinels int  // how many watch the master; a majority must find that it is down; 3 if 0
	TLS       *TLS // for clients, on a second port of each server, and between the servers; without TLS if nil
}

const (
	downAfter       = time.Second     // how long the master may not answer before a Sentinel takes it to be down
	failoverTimeout = 5 * time.Second // half the time until a failed failover is tried again
)

// RedisSentinel is a Redis master with one Redis replica, which Sentinels promote when the master is down.
//
// Promotion takes a few seconds longer than downAfter: Sentinels agree, elect one of them, and ask the Redis replica
// once a second for its role.
type RedisSentinel struct {
	MasterName    string   // name of the group
	SentinelAddrs []string // host:port, for TLS if there is TLS
	Master        *Redis   // the first one
	Replica       *Redis   // the first one
	Sentinels     []*Redis

	tls *TLS
}

// StartRedisSentinel starts the servers. It waits until the Redis replica is in sync with the master and every Sentinel
// knows it and the other Sentinels.
func StartRedisSentinel(ctx context.Context, o RedisSentinelOptions) (*RedisSentinel, error) {
	if o.Sentinels == 0 {
		o.Sentinels = 3
	}
	s := &RedisSentinel{MasterName: "stock", tls: o.TLS}
	if err := s.start(ctx, o); err != nil {
		return nil, errors.Join(err, s.Stop(ctx))
	}
	return s, nil
}

func (s *RedisSentinel) start(ctx context.Context, o RedisSentinelOptions) (err error) {
	var args []string
	if o.TLS != nil {
		args = []string{"--tls-replication", "yes"}
	}
	if s.Master, err = StartRedis(ctx, RedisOptions{Name: "master", TLS: o.TLS, Args: args}); err != nil {
		return err
	}
	master := s.Master.addressFor(o.TLS)
	s.Replica, err = StartRedis(ctx, RedisOptions{Name: "replica", ReplicaOf: master, TLS: o.TLS, Args: args})
	if err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(master)
	if err != nil {
		return err
	}
	s.Sentinels, err = StartRedisMasters(ctx, o.Sentinels, RedisOptions{
		Name: "sentinel",
		Config: fmt.Sprintf("sentinel monitor %[1]s %[2]s %[3]s %[4]d\n"+
			"sentinel down-after-milliseconds %[1]s %[5]d\n"+
			"sentinel failover-timeout %[1]s %[6]d\n",
			s.MasterName, host, port, o.Sentinels/2+1, downAfter.Milliseconds(), failoverTimeout.Milliseconds()),
		TLS:  o.TLS,
		Args: append(args, "--sentinel"),
	})
	if err != nil {
		return err
	}
	for _, sentinel := range s.Sentinels {
		s.SentinelAddrs = append(s.SentinelAddrs, sentinel.addressFor(o.TLS))
		if err := s.await(ctx, sentinel, s.canFailOver); err != nil {
			return err
		}
	}
	return nil
}

// canFailOver returns an error unless the Sentinel knows the others and could promote the Redis replica. It promotes
// only one that has reported its link to the master.
func (s *RedisSentinel) canFailOver(ctx context.Context, sentinel *redis.SentinelClient) error {
	master, err := sentinel.Master(ctx, s.MasterName).Result()
	if err != nil {
		return err
	}
	if others := master["num-other-sentinels"]; others != strconv.Itoa(len(s.Sentinels)-1) {
		return fmt.Errorf("it knows %s of the other %d Sentinels", others, len(s.Sentinels)-1)
	}
	replicas, err := sentinel.Replicas(ctx, s.MasterName).Result()
	if err == nil &&
		(len(replicas) != 1 || replicas[0]["flags"] != "slave" || replicas[0]["master-link-status"] != "ok") {
		err = fmt.Errorf("the Redis replicas are %v", replicas)
	}
	return err
}

// AwaitPromotion waits until the Redis replica is a master and every Sentinel tells clients so.
func (s *RedisSentinel) AwaitPromotion(ctx context.Context) error {
	if err := s.Replica.awaitReplication(ctx, "role:master"); err != nil {
		return err
	}
	for _, sentinel := range s.Sentinels {
		err := s.await(ctx, sentinel, func(ctx context.Context, sentinel *redis.SentinelClient) error {
			master, err := sentinel.GetMasterAddrByName(ctx, s.MasterName).Result()
			if addr := strings.Join(master, ":"); err == nil && addr != s.Replica.addressFor(s.tls) {
				err = fmt.Errorf("the master is %s", addr)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// await calls ready with a client of the Sentinel until it returns nil.
func (s *RedisSentinel) await(
	ctx context.Context, sentinel *Redis, ready func(context.Context, *redis.SentinelClient) error,
) error {
	client := redis.NewSentinelClient(&redis.Options{Addr: sentinel.Addr, MaxRetries: -1})
	defer client.Close()
	return sentinel.Await(ctx, func(ctx context.Context) error { return ready(ctx, client) })
}

// Stop kills the servers and removes their directories.
func (s *RedisSentinel) Stop(ctx context.Context) error {
	return stopRedis(ctx, append(slices.Clone(s.Sentinels), s.Replica, s.Master)...)
}
