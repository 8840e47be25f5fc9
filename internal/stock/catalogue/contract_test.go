package catalogue_test

import (
	"context"
	"flag"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"stock/internal/contract"
	"stock/internal/must"
	"stock/internal/servers/serverstest"
	"stock/internal/stock"
	"stock/internal/stock/catalogue"
	"stock/internal/stock/httpapi"
	"stock/internal/stock/retention"
	"stock/internal/stock/stocktest"
)

// rulesOf returns what a strategy promises on a store.
func rulesOf(s catalogue.Status, on stock.Store) contract.Rules {
	r := contract.Rules{
		Store: string(on), Remaining: s.TellsRemaining(), Oversells: s.Claim.OneReplica == stock.Oversells,
		Meets:  s.Claim.TwoReplicas == stock.Correct && s.Claim.Restocked == stock.Correct && !s.WriteThrough,
		Orders: slices.Contains(s.Orders, on), Holds: slices.Contains(s.Reservations, on),
	}
	if s.Idempotent() {
		r.Keys = string(stock.MySQL)
		if on == stock.Redis {
			r.Keys = string(stock.Redis)
		}
	}
	if s.WriteBehind {
		r.Behind = string(stock.MySQL)
	}
	if s.WriteThrough {
		r.Through = string(stock.MySQL)
	}
	return r
}

// serving returns a client of two replicas of the service.
func serving(t *testing.T, a stocktest.Addresses) (*contract.Site, map[string]contract.Rules) {
	t.Helper()
	c := &contract.Site{HTTP: http.DefaultClient, Ways: map[string]contract.Way{}, NewItem: stocktest.NewItem}
	rules := map[string]contract.Rules{}
	for range 2 {
		deps := a.Connect(t)
		registry, err := catalogue.Build(deps, catalogue.Strategies)
		must.Succeed(t, err)
		t.Cleanup(func() { must.Succeed(t, registry.Close()) })
		api, err := httpapi.New(httpapi.Config{
			Strategies: registry, Deps: deps, DefaultStrategy: "update", Replica: "a", RequestTimeout: time.Hour,
			MaxTTL: time.Hour, MaxHold: time.Second, Registry: prometheus.NewRegistry(),
			Log: slog.New(slog.DiscardHandler),
		})
		must.Succeed(t, err)
		public, admin := httptest.NewServer(api.Public()), httptest.NewServer(api.Admin())
		t.Cleanup(public.Close)
		t.Cleanup(admin.Close)
		c.Replicas, c.Admins = append(c.Replicas, public.URL), append(c.Admins, admin.URL)
		c.LetPass = func(ctx context.Context, q contract.Request, items []int64, prefix string) error {
			return letPass(ctx, deps, q, items, prefix)
		}
		c.Pending = storesOf(deps).Pending
		for _, s := range registry.Statuses() {
			for _, on := range s.Stores {
				if s.Claim.OneReplica == stock.SellsNothing || s.Claim.OneReplica == stock.Undersells {
					continue
				}
				name := s.Name + "/" + string(on)
				c.Ways[name] = contract.Way{Strategy: s.Name, Store: string(on)}
				rules[name] = rulesOf(s, on)
			}
		}
	}
	return c, rules
}

func storesOf(d stock.Deps) contract.Stores {
	return contract.Stores{DB: d.MySQL.DB, Redis: d.Redis, Prefix: d.KeyPrefix}
}

// letPass lets time pass for a script, and prunes.
func letPass(ctx context.Context, d stock.Deps, q contract.Request, items []int64, prefix string) error {
	stores := storesOf(d)
	if q.Verb == contract.Later {
		return stores.Age(ctx, q.Time, items, prefix)
	}
	if err := stores.Age(ctx, 8*24*time.Hour, items, prefix); err != nil {
		return err
	}
	_, err := retention.PruneLedger(ctx, d.MySQL, 7*24*time.Hour)
	return err
}

// Every strategy answers made-up sequences of requests as the model does.
func TestEveryStrategyKeepsTheContract(t *testing.T) {
	serverstest.Long(t)
	t.Parallel()
	client, all := serving(t, stocktest.NewAddresses(t))
	for name := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			playMadeUp(t, client, all, name)
		})
	}
}

// scripts is how many sequences are made up for each strategy.
var scripts = flag.Int("scripts", 8, "sequences of requests for each strategy")

func playMadeUp(t *testing.T, shared *contract.Site, all map[string]contract.Rules, name string) {
	site := *shared
	site.Ways = tested(shared.Ways, name)
	rules := tested(all, name)
	p := contract.Player{New: site.Service, Rules: rules, Patience: time.Minute}
	failed, err := p.Check(t.Context(), contract.Can{
		Rules: rules, Time: true, Prune: rules[""].Keys != "", Restock: rules[""].Through == "", Cancel: true, Manner: true,
		Leave: true, Items: 2,
	}, 1, *scripts, 8)
	must.Succeed(t, err)
	must.Succeed(t, p.Proves())
	if failed != nil {
		t.Error(failed)
	}
}

// tested returns what a script may name: the tested strategy, which needs no name, and some that share its keys or its
// stock. What is written to MySQL later must not be sold there meanwhile.
func tested[T any](all map[string]T, name string) map[string]T {
	some := map[string]T{"": all[name]}
	for _, other := range []string{"update/mysql", "reserve/mysql", "slots/slots", "redis-script/redis"} {
		if name != "redis-stream/redis" || other == "redis-script/redis" {
			some[other] = all[other]
		}
	}
	return some
}
