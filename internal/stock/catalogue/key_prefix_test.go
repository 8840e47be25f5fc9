package catalogue_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"stock/internal/servers"
	"stock/internal/servers/serverstest"
	"stock/internal/stock"
	"stock/internal/stock/catalogue"
	"stock/internal/stock/stocktest"
)

// The account of the service may touch only what begins with the prefix: any other key or channel is an error.
func TestEveryStrategySellsWithAnAccountThatIsLimitedToItsPrefix(t *testing.T) {
	t.Parallel()
	const prefix = "shop-7:"
	server := serverstest.StartRedis(t, servers.RedisOptions{})
	admin := serverstest.RedisClient(t, &redis.Options{Addr: server.Addr})
	rule := []any{"ACL", "SETUSER", "limited", "on", ">secret", "~" + prefix + "*", "&" + prefix + "*", "+@all"}
	if err := admin.Do(t.Context(), rule...).Err(); err != nil {
		t.Fatal(err)
	}
	addresses := stocktest.NewAddresses(t, stock.NeedMySQL)
	addresses.Redis = &redis.Options{Addr: server.Addr, Username: "limited", Password: "secret"}
	deps := func() stock.Deps {
		d := addresses.Connect(t)
		d.KeyPrefix = prefix
		return d
	}
	one, other := stocktest.NewService(t, deps()), stocktest.NewService(t, deps())
	if err := one.Check()[stock.NeedRedis]; err != nil {
		t.Errorf("health: %v", err)
	}
	elsewhere := func(need stock.Need) bool { return need != stock.NeedMySQL && need != stock.NeedRedis }
	for _, s := range catalogue.Strategies {
		if s.Claim.TwoReplicas != stock.Correct || slices.ContainsFunc(s.Needs, elsewhere) {
			continue
		}
		for _, on := range s.Stores {
			sellFromBoth(t, s.Name, on, one, other)
		}
	}
	if _, err := one.Backlog(t.Context()); err != nil {
		t.Errorf("backlog: %v", err)
	}
	keys, err := admin.Keys(t.Context(), "*").Result()
	if err != nil || len(keys) == 0 {
		t.Errorf("Redis has no key: %v", err)
	}
}

// sellFromBoth sells an item from two replicas at once, so that locks are waited for and passed on.
func sellFromBoth(t *testing.T, strategy string, on stock.Store, replicas ...*stocktest.Service) {
	t.Helper()
	const each, users = 3, 4
	id := replicas[0].NewItem(t, int64(each*users*len(replicas)))
	var all sync.WaitGroup
	for _, replica := range replicas {
		deducter := replica.Deducter(t, strategy, on)
		for range users {
			all.Go(func() {
				for range each {
					if _, err := deducter.Deduct(t.Context(), stock.Request{GoodsID: id, Count: 1}); err != nil {
						t.Errorf("%s on %s: %v", strategy, on, err)
					}
				}
			})
		}
	}
	all.Wait()
	replicas[0].WantLeft(t, on, id, 0)
}
