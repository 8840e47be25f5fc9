// Package health asks the servers of a replica whether they answer and take writes.
package health

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	goredis "github.com/redis/go-redis/v9"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"stock/internal/access"
	"stock/internal/stock"
	"stock/internal/stock/redis"
)

// Limit is how long a check may take.
const Limit = time.Second

// MaxAge is how long the result of a check is used.
const MaxAge = time.Second / 2

// Checker asks the servers of one replica.
type Checker struct {
	deps stock.Deps

	mu     sync.Mutex // held during a check
	result map[stock.Need]error
	ended  time.Time // when the last check ended
}

// New makes a Checker of the configured servers.
func New(d stock.Deps) *Checker { return &Checker{deps: d} }

// Check asks every configured server, all at once. The result has an entry for each: nil if it answers and takes
// writes, and ErrBusy if it is MySQL and accepts no further connection.
//
// However often clients ask, the servers have little to do: callers share the check under way, and its result for
// MaxAge after its end. They must not change the map.
func (c *Checker) Check() map[stock.Need]error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.ended) > MaxAge {
		ctx, cancel := context.WithTimeout(context.Background(), Limit)
		defer cancel()
		c.result = check(ctx, c.deps)
		c.ended = time.Now()
	}
	return c.result
}

func check(ctx context.Context, d stock.Deps) map[stock.Need]error {
	pings := map[stock.Need]func() error{
		stock.NeedMySQL:     func() error { return checkMySQL(ctx, d.MySQLHealth) },
		stock.NeedRedis:     func() error { return pingRedis(ctx, redis.New(d)) },
		stock.NeedRedlock:   func() error { return pingMajority(ctx, d) },
		stock.NeedEtcd:      func() error { return pingEtcd(ctx, d.Etcd) },
		stock.NeedZooKeeper: func() error { return pingZooKeeper(ctx, d.ZooKeeper) },
	}
	var (
		mu     sync.Mutex
		wg     sync.WaitGroup
		checks = map[stock.Need]error{}
	)
	for need, ping := range pings {
		if !d.Has(need) {
			continue
		}
		wg.Go(func() {
			err := ping()
			mu.Lock()
			defer mu.Unlock()
			checks[need] = access.Explain(err)
		})
	}
	wg.Wait()
	return checks
}

// pingRedis asks every master: if one of a Cluster is down, its items cannot be sold.
func pingRedis(ctx context.Context, store redis.Store) error {
	cluster, ok := store.Client.(*goredis.ClusterClient)
	if !ok {
		return store.CheckWritable(ctx)
	}
	return cluster.ForEachMaster(ctx, func(ctx context.Context, master *goredis.Client) error {
		return redis.Store{Client: master, Prefix: store.Prefix}.CheckWritable(ctx)
	})
}

// pingMajority fails unless a majority of independent masters answers and takes writes.
func pingMajority(ctx context.Context, d stock.Deps) error {
	masters := d.Redlock
	errs := make([]error, len(masters))
	var wg sync.WaitGroup
	for i, master := range masters {
		wg.Go(func() { errs[i] = redis.Store{Client: master, Prefix: d.KeyPrefix}.CheckWritable(ctx) })
	}
	wg.Wait()
	down := slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(down) > len(masters)/2 {
		return fmt.Errorf("%d of %d masters are down or take no writes: %w", len(down), len(masters), errors.Join(down...))
	}
	return nil
}

// pingEtcd reads a key that need not exist, one that the account of the locks may read: only a cluster with a leader
// answers. A cluster whose space quota is exceeded answers too, but has raised an alarm and refuses every write. The
// alarms come first: that request is not repeated, and so says why there is no connection.
func pingEtcd(ctx context.Context, client *clientv3.Client) error {
	status, err := pb.NewMaintenanceClient(client.ActiveConnection()).Status(ctx, &pb.StatusRequest{})
	if err != nil {
		return err
	}
	for _, alarm := range status.Errors {
		if strings.Contains(alarm, pb.AlarmType_NOSPACE.String()) {
			return errors.New("its space quota is exceeded, so it refuses writes: " +
				"compact and defragment etcd, then clear the alarm with etcdctl alarm disarm")
		}
	}
	_, err = client.Get(ctx, "locks/")
	return err
}

// pingZooKeeper reads the root of the locks, which exists once there has been a lock. That fails if it belongs to
// another account. The client does not know contexts, and a request without a session would wait for one.
func pingZooKeeper(ctx context.Context, conn *zk.Conn) error {
	if state := conn.State(); state != zk.StateHasSession {
		return fmt.Errorf("no session: %v", state)
	}
	answer := make(chan error, 1)
	go func() {
		_, _, err := conn.Get(stock.ZooKeeperRoot)
		if errors.Is(err, zk.ErrNoNode) {
			err = nil
		}
		answer <- err
	}()
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
