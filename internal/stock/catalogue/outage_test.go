package catalogue_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"stock/internal/must"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
	"stock/internal/stock"
	"stock/internal/stock/catalogue"
	"stock/internal/stock/stocktest"
)

// outage is servers that only one test uses, and may kill.
type outage struct {
	mysql     *servers.MySQL
	redis     *servers.Redis   // with a Redis replica
	masters   []*servers.Redis // of Redlock
	etcd      *servers.Etcd
	zookeeper *servers.ZooKeeper
}

func newOutage(t *testing.T) (outage, *stocktest.Service) {
	t.Helper()
	mysql, dsn := serverstest.StartDatabase(t, servers.MySQLOptions{}) // durable: it will be killed
	o := outage{
		mysql:     mysql,
		redis:     serverstest.StartRedis(t, servers.RedisOptions{AOF: true, Fsync: "always"}),
		etcd:      serverstest.StartEtcd(t, servers.EtcdOptions{}),
		zookeeper: serverstest.StartZooKeeper(t, servers.ZooKeeperOptions{}),
	}
	serverstest.StartRedis(t, servers.RedisOptions{ReplicaOf: o.redis.Addr})
	stocktest.Migrate(t, dsn)
	a := stocktest.Addresses{
		MySQL: dsn, Redis: &redis.Options{Addr: o.redis.Addr}, RedisReplica: true,
		Etcd: o.etcd.Addr, ZooKeeper: o.zookeeper.Addr,
	}
	for range 3 {
		master := serverstest.StartRedis(t, servers.RedisOptions{})
		o.masters = append(o.masters, master)
		a.Redlock = append(a.Redlock, &redis.Options{Addr: master.Addr})
	}
	service := stocktest.NewService(t, a.Connect(t))
	service.Set(t, 1, 1_000_000)
	return o, service
}

// eachDeducter runs a test for every strategy on every store. It tells the test whether the strategy needs the server
// to sell.
func eachDeducter(
	t *testing.T, service *stocktest.Service, need stock.Need, test func(t *testing.T, d stock.Deducter, needed bool),
) {
	t.Helper()
	for _, strategy := range catalogue.Strategies {
		for _, on := range strategy.Stores {
			needed := slices.Contains(strategy.NeedsOn(on), need)
			if strategy.WriteBehind && need == stock.NeedMySQL {
				needed = false
			}
			d := service.Deducter(t, strategy.Name, on)
			t.Run(strategy.Name+"/"+string(on), func(t *testing.T) { test(t, d, needed) })
		}
	}
}

// unready returns the servers that do not answer or take no writes.
func unready(service *stocktest.Service) (down []stock.Need) {
	for need, err := range service.Check() {
		if err != nil {
			down = append(down, need)
		}
	}
	return down
}

// The refusal must come at once, and the outcome must not be unknown.
func TestStrategiesAreUnavailableOnlyWhileAServerThatTheyNeedIsDown(t *testing.T) {
	t.Parallel()
	o, service := newOutage(t)
	deduct := func(d stock.Deducter) error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := d.Deduct(ctx, stock.Request{GoodsID: 1, Count: 1})
		return err
	}
	// Eventually: on a busy machine, a server may be too slow to answer for a moment, which is unavailable too.
	works := func(t *testing.T, d stock.Deducter, _ bool) {
		var err error
		serverstest.Eventually(t, "the strategy is available", func() bool {
			err = deduct(d)
			return !errors.Is(err, stock.ErrUnavailable)
		})
		if err != nil {
			t.Errorf("Deduct: %v", err)
		}
	}
	refuses := func(t *testing.T, d stock.Deducter, needed bool) {
		if !needed {
			works(t, d, needed)
			return
		}
		if err := deduct(d); !errors.Is(err, stock.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Deduct: %v, want unavailable at once", err)
		}
	}
	for _, server := range []struct {
		need    stock.Need
		kill    func()
		restart func(context.Context) error
	}{
		{stock.NeedMySQL, o.mysql.Kill, o.mysql.Restart},
		{stock.NeedRedis, o.redis.Kill, o.redis.Restart},
		{
			stock.NeedRedlock,
			func() { o.masters[0].Kill(); o.masters[1].Kill() },
			func(ctx context.Context) error {
				return errors.Join(o.masters[0].Restart(ctx), o.masters[1].Restart(ctx))
			},
		},
		{stock.NeedEtcd, o.etcd.Kill, o.etcd.Restart},
		{stock.NeedZooKeeper, o.zookeeper.Kill, o.zookeeper.Restart},
	} {
		t.Run(string(server.need), func(t *testing.T) {
			// The pools need connections that the outage can break.
			eachDeducter(t, service, server.need, works)
			server.kill()
			t.Run("down", func(t *testing.T) { eachDeducter(t, service, server.need, refuses) })
			serverstest.Eventually(t, "Check reports only "+string(server.need)+" as down", func() bool {
				return slices.Equal(unready(service), []stock.Need{server.need})
			})
			must.Succeed(t, server.restart(t.Context()))
			// Eventually: clients that have failed often dial only once a second.
			serverstest.Eventually(t, "every server answers", func() bool { return len(unready(service)) == 0 })
			t.Run("up again", func(t *testing.T) { eachDeducter(t, service, server.need, works) })
		})
	}
}

func TestAFullEtcdIsUnavailableUntilItIsRepaired(t *testing.T) {
	t.Parallel()
	server := serverstest.StartEtcd(t, servers.EtcdOptions{
		Relaxed: true, Args: []string{"--quota-backend-bytes=1000000"},
	})
	a := stocktest.Addresses{Redis: stocktest.Servers.Redis(t), Etcd: server.Addr}
	deps := a.Connect(t)
	service := stocktest.NewService(t, deps)
	item := service.NewItem(t, 10)
	deduct := func() error {
		_, err := service.Deducter(t, "lock-etcd", stock.Redis).Deduct(t.Context(), stock.Request{GoodsID: item, Count: 1})
		return err
	}
	must.Succeed(t, deduct())
	for large := strings.Repeat("x", 100_000); ; {
		_, err := deps.Etcd.Put(t.Context(), "large", large)
		if errors.Is(err, rpctypes.ErrNoSpace) {
			break
		}
		must.Succeed(t, err)
	}

	if err := deduct(); !errors.Is(err, stock.ErrUnavailable) || !strings.Contains(err.Error(), "etcdctl alarm disarm") {
		t.Errorf("Deduct: %v, want unavailable, and how to clear the alarm", err)
	}
	service.WantLeft(t, stock.Redis, item, 9)
	if down := unready(service); !slices.Equal(down, []stock.Need{stock.NeedEtcd}) {
		t.Errorf("Check reports %v as down, want etcd", down)
	}

	now, err := deps.Etcd.Delete(t.Context(), "large")
	must.Succeed(t, err)
	_, compact := deps.Etcd.Compact(t.Context(), now.Header.Revision, clientv3.WithCompactPhysical())
	_, defragment := deps.Etcd.Defragment(t.Context(), server.Addr)
	_, disarm := deps.Etcd.AlarmDisarm(t.Context(), &clientv3.AlarmMember{}) // all alarms
	must.Succeed(t, errors.Join(compact, defragment, disarm))
	serverstest.Eventually(t, "Check reports no server as down", func() bool { return len(unready(service)) == 0 })
	if err := deduct(); err != nil {
		t.Errorf("Deduct: %v", err)
	}
}
