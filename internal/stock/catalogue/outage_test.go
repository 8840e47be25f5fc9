package catalogue_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"stock/internal/servers"
	"stock/internal/servers/serverstest"
	"stock/internal/stock"
	"stock/internal/stock/catalogue"
	"stock/internal/stock/stocktest"
)

// outage is servers that one test may kill.
type outage struct {
	mysql   *servers.MySQL
	redis   *servers.Redis
	masters []*servers.Redis

	etcd      *servers.Etcd
	zookeeper *servers.ZooKeeper
}

func newOutage(t *testing.T) (outage, *stocktest.Service) {
	o := outage{
		mysql: serverstest.StartMySQL(t, servers.MySQLOptions{}), // durable: it will be killed
		redis: serverstest.StartRedis(t, servers.RedisOptions{AOF: true, Fsync: "always"}),

		etcd:      serverstest.StartEtcd(t, servers.EtcdOptions{}),
		zookeeper: serverstest.StartZooKeeper(t, servers.ZooKeeperOptions{}),
	}
	dsn, err := o.mysql.CreateDatabase(t.Context(), "stock")
	if err != nil {
		t.Fatal(err)
	}
	stocktest.Migrate(t, dsn)
	a := stocktest.Addresses{MySQL: dsn, Redis: &redis.Options{Addr: o.redis.Addr}, Etcd: o.etcd.Addr, ZooKeeper: o.zookeeper.Addr}
	for range 3 {
		master := serverstest.StartRedis(t, servers.RedisOptions{})
		o.masters = append(o.masters, master)
		a.Redlock = append(a.Redlock, &redis.Options{Addr: master.Addr})
	}
	service := stocktest.NewService(t, a.Connect(t))
	if err := service.SetStock(t.Context(), 1, 1_000_000); err != nil {
		t.Fatal(err)
	}
	return o, service
}

// eachDeducter visits every strategy on every store, and tells whether it needs a server to sell.
func eachDeducter(t *testing.T, service *stocktest.Service, need stock.Need, visit func(t *testing.T, d stock.Deducter, needed bool)) {
	for _, strategy := range catalogue.Strategies {
		for _, on := range strategy.Stores {
			d, _, err := service.Resolve(strategy.Name, on)
			if err != nil {
				t.Fatal(err)
			}
			t.Run(strategy.Name+"/"+string(on), func(t *testing.T) {
				visit(t, d, slices.Contains(strategy.NeedsOn(on), need) && !(strategy.WriteBehind && need == stock.NeedMySQL))
			})
		}
	}
}

// unready lists the servers that do not answer in a second.
func unready(t *testing.T, service *stocktest.Service) (down []stock.Need) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	for need, err := range service.Check(ctx) {
		if err != nil {
			down = append(down, need)
		}
	}
	return down
}

// A refusal while a server is down must be quick, and must not leave open whether units were deducted.
func TestOutage(t *testing.T) {
	t.Parallel()
	o, service := newOutage(t)
	deduct := func(d stock.Deducter) error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := d.Deduct(ctx, stock.Request{GoodsID: 1, Count: 1})
		return err
	}
	// A server that is slow to answer is unavailable too, and on a busy machine one may be for a moment.
	works := func(t *testing.T, d stock.Deducter, _ bool) {
		var err error
		serverstest.Eventually(t, "the servers that the strategy needs answer", func() bool {
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
			// Used once, so that pools hold connections that the outage breaks.
			eachDeducter(t, service, server.need, works)
			server.kill()
			t.Run("down", func(t *testing.T) { eachDeducter(t, service, server.need, refuses) })
			serverstest.Eventually(t, "Check finds that only "+string(server.need)+" does not answer", func() bool {
				return slices.Equal(unready(t, service), []stock.Need{server.need})
			})
			if err := server.restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			// Clients that have failed often dial once a second only.
			serverstest.Eventually(t, "every server answers", func() bool { return len(unready(t, service)) == 0 })
			t.Run("up again", func(t *testing.T) { eachDeducter(t, service, server.need, works) })
		})
	}
}

// A server or a pool that has no connection left for a lock is there: one will be free.
func TestALockThatGetsNoConnectionIsBusy(t *testing.T) {
	t.Parallel()
	a := stocktest.NewAddresses(t)
	t.Run("Redis", func(t *testing.T) {
		t.Parallel()
		deps := a.Connect(t)
		full := redis.NewClient(&redis.Options{Addr: a.Redis.Addr, DB: a.Redis.DB, PoolSize: 1, PoolTimeout: time.Millisecond, MaxRetries: -1})
		defer full.Close()
		taken := full.Conn()
		defer taken.Close()
		if err := taken.Ping(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		deps.Redis = full
		wantBusy(t, stocktest.NewService(t, deps).Deducter(t, "lock-redis-lua", stock.MySQL))
	})
	t.Run("MySQL", func(t *testing.T) {
		t.Parallel()
		server := serverstest.StartMySQL(t, servers.MySQLOptions{Relaxed: true, Args: []string{"--max-connections=10"}})
		dsn, err := server.CreateDatabase(t.Context(), "stock")
		if err != nil {
			t.Fatal(err)
		}
		deps := a.Connect(t)
		deps.MySQLLocks = stocktest.MySQL(t, dsn)
		service := stocktest.NewService(t, deps)
		crowd := stocktest.MySQL(t, dsn)
		for err == nil {
			_, err = crowd.Conn(t.Context())
		}
		if number, ok := errors.AsType[*mysql.MySQLError](err); !ok || number.Number != 1040 {
			t.Fatalf("%v, want too many connections", err)
		}
		wantBusy(t, service.Deducter(t, "lock-mysql-getlock", stock.Redis))
	})
}

func wantBusy(t testing.TB, d stock.Deducter) {
	t.Helper()
	_, err := d.Deduct(t.Context(), stock.Request{GoodsID: stocktest.NewItem(), Count: 1})
	if !errors.Is(err, stock.ErrBusy) || errors.Is(err, stock.ErrUnavailable) {
		t.Errorf("Deduct: %v, want busy", err)
	}
}
