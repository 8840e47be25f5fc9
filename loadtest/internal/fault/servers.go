package fault

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/internal/monotonic"
	"stock/internal/servers"
	"stock/internal/tcpproxy"
	"stock/loadtest/internal/messages"
	"stock/loadtest/internal/oracle"
)

// pollInterval is the time between two looks at what a scenario waits for.
const pollInterval = 5 * time.Millisecond

// eventually waits until a condition holds that the scenario observes.
func eventually(ctx context.Context, what string, holds func() (bool, error)) error {
	for {
		held, err := holds()
		if held || err != nil {
			return err
		}
		if err := monotonic.Sleep(ctx, pollInterval); err != nil {
			return fmt.Errorf("wait until %s: %w", what, err)
		}
	}
}

// openRedis opens connections of the scenario's own. A command is sent once. The caller closes them.
func openRedis(address string) *redis.Client { return openRedisAs(oracle.Account{}, address) }

func openRedisAs(account oracle.Account, address string) *redis.Client {
	options := account.RedisOptions(address).Simple()
	options.MaxRetries, options.DisableIdentity = -1, true
	return redis.NewClient(options)
}

// redisServers is the Redis of a round that breaks it.
type redisServers struct {
	addresses []string // at which clients find it, host:port
	master    *servers.Redis
	replica   *servers.Redis         // a Redis replica of the master; nil: there is none
	front     *tcpproxy.Proxy        // in front of the master; nil: there is none
	link      *tcpproxy.Proxy        // between the master and its Redis replica; nil: there is none
	sentinels *servers.RedisSentinel // of both; nil: there are none
	cluster   *servers.RedisCluster  // to which both belong; nil: to none

	// Of failOverCluster.
	held         []func()     // release what waits until the master has been killed
	othersDownNS atomic.Int64 // for how long another master refused its keys
}

// oneRedis starts a master alone.
func oneRedis(ctx context.Context, d *Deployment) error {
	o := d.On.Options
	o.Name = "redis of the round"
	master, err := d.newRedis(ctx, o)
	if err == nil {
		d.redis = &redisServers{addresses: []string{master.Addr}, master: master}
	}
	return err
}

// redisPair starts a master with a Redis replica. There is a proxy between the two, and one in front of the master.
func redisPair(ctx context.Context, d *Deployment) (err error) {
	r := &redisServers{}
	d.redis = r
	if r.master, err = d.newRedis(ctx, servers.RedisOptions{Name: "master"}); err != nil {
		return err
	}
	if r.front, err = d.newProxy(r.master.Addr); err != nil {
		return err
	}
	if r.link, err = d.newProxy(r.master.Addr); err != nil {
		return err
	}
	r.addresses = []string{r.front.Addr()}
	o := servers.RedisOptions{Name: "Redis replica", ReplicaOf: r.link.Addr()}
	if r.replica, err = d.newRedis(ctx, o); err != nil {
		return err
	}
	return r.master.AwaitReplica(ctx)
}

// redisWithSentinels starts a master with a Redis replica, which three Sentinels promote when the master is down.
func redisWithSentinels(ctx context.Context, d *Deployment) error {
	group, err := servers.StartRedisSentinel(ctx, servers.RedisSentinelOptions{})
	if err == nil {
		d.onStop(group.Stop)
		d.redis = &redisServers{
			addresses: []string{group.Master.Addr},
			master:    group.Master, replica: group.Replica, sentinels: group,
		}
	}
	return err
}

// redisCluster starts a Cluster whose masters have a Redis replica each.
func redisCluster(ctx context.Context, d *Deployment) error {
	cluster, err := servers.StartRedisCluster(ctx, servers.RedisClusterOptions{Replicas: true})
	if err == nil {
		d.onStop(cluster.Stop)
		d.redis = &redisServers{
			addresses: cluster.Addrs, cluster: cluster,
			master: cluster.Masters[lostMaster], replica: cluster.Replicas[lostMaster],
		}
	}
	return err
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

// rejoin starts the old master again, as a Redis replica of the one that was promoted.
func (r *redisServers) rejoin(ctx context.Context) error {
	err := r.master.Restart(ctx)
	if err == nil && r.cluster == nil { // a Cluster makes it a Redis replica itself
		err = r.master.Follow(ctx, r.replica)
	}
	if err != nil {
		return err
	}
	return r.replica.AwaitReplica(ctx)
}

// pause stops a process (SIGSTOP), and waits until it has stopped.
func pause(ctx context.Context, p *servers.Process) error {
	if runtime.GOOS != "linux" {
		return fmt.Errorf("%w: only Linux shows in /proc that a process is stopped", errLeftOut)
	}
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return eventually(ctx, p.Name+" is stopped", func() (bool, error) {
		state, err := servers.ProcessState(p.PID)
		return state == 'T', err
	})
}

// lostMaster is the master of a Redis Cluster that the scenarios kill: that of the first third of the hash slots.
const lostMaster = 0

// failOverCluster kills the master, waits until the Cluster has promoted its Redis replica, and measures for how long
// another master refuses its keys meanwhile.
func (r *redisServers) failOverCluster(ctx context.Context) error {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	watched := make(chan struct{})
	r.master.Kill()
	go func() {
		defer close(watched)
		r.watchOther(watching)
	}()
	err := r.cluster.AwaitPromotion(ctx, lostMaster)
	for _, release := range r.held {
		release()
	}
	stop()
	<-watched
	return err
}

// watchOther asks a master that lives for a key of its own until ctx ends, and notes for how long it refused.
func (r *redisServers) watchOther(ctx context.Context) {
	client := openRedis(r.cluster.Addrs[lostMaster+1])
	defer client.Close()
	item := int64(firstItem)
	for servers.ClusterMaster(messages.StockKey(item)) != lostMaster+1 {
		item++
	}
	for ctx.Err() == nil {
		asked := time.Now()
		_, err := client.Exists(ctx, messages.StockKey(item)).Result()
		time.Sleep(pollInterval)
		if err != nil && ctx.Err() == nil {
			r.othersDownNS.Add(int64(time.Since(asked)))
		}
	}
}

// redlockMasters starts masters of Redlock.
func redlockMasters(n int) start {
	return func(ctx context.Context, d *Deployment) error {
		o := d.On.Options
		o.Name = "master"
		masters, err := servers.StartRedisMasters(ctx, n, o)
		d.masters, d.Addresses.Redlock = masters, nil
		for _, m := range masters {
			d.onStop(m.Stop)
			d.Addresses.Redlock = append(d.Addresses.Redlock, m.Addr)
		}
		return err
	}
}

// etcdMembers is an etcd cluster whose members reach each other through proxies.
type etcdMembers struct {
	cluster *servers.EtcdCluster
	links   []*tcpproxy.Proxy  // in front of each member
	leader  *servers.Etcd      // at the start, or when it was killed
	status  servers.EtcdStatus // of the leader at that time
	apart   bool               // the victim reaches the leader alone, and the survivor the others
}

// threeEtcd starts an etcd of three members.
func threeEtcd(ctx context.Context, d *Deployment) (err error) {
	m := &etcdMembers{}
	m.cluster, err = servers.StartEtcdCluster(ctx, servers.EtcdClusterOptions{
		Member: servers.EtcdOptions{Relaxed: true},
		Link: func(address string) (string, error) {
			link, err := d.newProxy(address)
			if err != nil {
				return "", err
			}
			m.links = append(m.links, link)
			return link.Addr(), nil
		},
	})
	if err != nil {
		return err
	}
	d.onStop(m.cluster.Stop)
	d.etcd, d.Addresses.Etcd = m, m.cluster.Addrs
	return m.awaitLeader(ctx)
}

// threeEtcdApart is threeEtcd with a victim that reaches the leader alone, and a survivor that reaches the others.
func threeEtcdApart(ctx context.Context, d *Deployment) error {
	if err := threeEtcd(ctx, d); err != nil {
		return err
	}
	d.etcd.apart, d.Addresses.Etcd = true, d.etcd.followers()
	return nil
}

// awaitLeader waits until a member says that it leads. On a busy machine, members may need more than one try to answer.
func (m *etcdMembers) awaitLeader(ctx context.Context) error {
	return eventually(ctx, "a member of etcd leads", func() (bool, error) {
		var err error
		m.leader, m.status, err = m.cluster.Leader(ctx)
		return err == nil, nil
	})
}

// killLeader kills the member that leads now, which may be another one than at the start.
func (m *etcdMembers) killLeader(ctx context.Context) error {
	err := m.awaitLeader(ctx)
	if err == nil {
		m.leader.Kill()
	}
	return err
}

// followers lists the addresses of all members but the leader.
func (m *etcdMembers) followers() (addresses []string) {
	for _, member := range m.cluster.Members {
		if member != m.leader {
			addresses = append(addresses, member.Addr)
		}
	}
	return addresses
}

// cutOffLeader drops all messages between the leader and the other members, in both directions.
func (m *etcdMembers) cutOffLeader(context.Context) error {
	for i, link := range m.links {
		if m.cluster.Members[i] == m.leader {
			link.BlackHole()
			continue
		}
		// Its messages also travel on the connections that it makes to the others.
		link.Select(madeBy(m.status.ID))
		link.Hold()
		link.Break()
	}
	return nil
}

// awaitElection waits until another member leads, in a later term. A member knows that it leads before it tells the new
// term.
func (m *etcdMembers) awaitElection(ctx context.Context) (leader *servers.Etcd, term uint64, err error) {
	err = eventually(ctx, "another member of etcd leads", func() (bool, error) {
		found, status, err := m.cluster.Leader(ctx)
		leader, term = found, status.Term
		return err == nil && leader != m.leader && term > m.status.Term, nil // an error: there is no leader yet
	})
	return leader, term, err
}

// madeBy selects the messages of the connections that a member of etcd makes to others.
func madeBy(member uint64) func(tcpproxy.Message) bool {
	header := fmt.Appendf(nil, "X-Server-From: %x\r\n", member)
	var mu sync.Mutex
	made := map[int]bool{}
	return func(m tcpproxy.Message) bool {
		mu.Lock()
		defer mu.Unlock()
		if bytes.Contains(m.Data, header) {
			made[m.Conn] = true
		}
		return made[m.Conn]
	}
}

// firstItem is below the ids of the scenarios' items: no load uses them.
const firstItem = 1_000_000
