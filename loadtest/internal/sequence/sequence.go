// Package sequence plays made-up sequences of requests on each strategy of a running service, and compares every answer
// and every stock with the model of the API.
package sequence

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"stock/internal/contract"
	"stock/loadtest/internal/load"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/topology"
	"stock/loadtest/internal/verify"
)

// Options say what is played.
type Options struct {
	Each int // sequences for each strategy on each store; twice as many if it has only one
	Seed uint64
	// Catalogue has the strategies that sequences may name beside the tested one, as far as they are among others.
	Catalogue []load.Strategy
}

// Limits of what is played at the same time, of all strategies and of one.
const (
	strategiesAtOnce = 4
	sequencesAtOnce  = 4
)

// patience is how long a request is sent again while it is refused as busy, and how long sales may be on their way to
// MySQL. It only tells a slow service from one that is stuck.
const patience = 5 * time.Minute

// Play plays sequences for each strategy that answers one request after another as the API promises, and returns what
// came of each.
func Play(ctx context.Context, t *topology.Topology, choices []load.Choice, o Options) ([]report.Contract, error) {
	site, closeSite, err := siteOf(t)
	if err != nil {
		return nil, err
	}
	defer closeSite()
	rules := map[string]contract.Rules{}
	beside, _, err := load.Choose(o.Catalogue, nil, "")
	if err != nil {
		return nil, err
	}
	for _, choice := range slices.Concat(choices, beside) {
		site.Ways[wayName(choice)] = contract.Way{Strategy: choice.Strategy.Name, Store: choice.Store}
		rules[wayName(choice)] = choice.Rules()
	}
	choices = slices.DeleteFunc(slices.Clone(choices), func(c load.Choice) bool { return !sequential(c.Strategy) })
	found := make([]report.Contract, len(choices))
	playing, within := errgroup.WithContext(ctx)
	playing.SetLimit(strategiesAtOnce)
	for i, choice := range choices {
		playing.Go(func() (err error) {
			found[i], err = o.play(within, *site, rules, choice)
			return err
		})
	}
	if err := playing.Wait(); err != nil {
		return nil, fmt.Errorf("play sequences of requests: %w", err)
	}
	return found, nil
}

func wayName(c load.Choice) string { return c.Strategy.Name + "/" + c.Store }

// sequential reports whether one request after another is answered as the API promises: also by most strategies that
// are wrong on purpose.
func sequential(s load.Strategy) bool {
	return !s.Baseline() && s.Claim.OneReplica != verify.ClaimUndersells
}

// others may be named in the sequences of any strategy. They share its keys or its stock.
var others = []string{"update", "reserve", "slots", "redis-script"}

// play plays the sequences of one strategy.
func (o Options) play(
	ctx context.Context, site contract.Site, all map[string]contract.Rules, choice load.Choice,
) (report.Contract, error) {
	tested := all[wayName(choice)]
	rules, ways := map[string]contract.Rules{"": tested}, map[string]contract.Way{"": site.Ways[wayName(choice)]}
	for name, other := range all {
		// What is written later must not be sold in that store meanwhile.
		if slices.Contains(others, site.Ways[name].Strategy) && (tested.Behind == "" || other.Store == tested.Store) {
			rules[name], ways[name] = other, site.Ways[name]
		}
	}
	site.Ways = ways
	p := contract.Player{New: site.Service, Rules: rules, Patience: patience}
	can := contract.Can{
		Rules: rules, Time: site.LetPass != nil, Restock: tested.Through == "", Cancel: true, Manner: true, Leave: true,
		Items: 2,
	}
	each := o.Each
	if len(choice.Strategy.Stores) == 1 {
		each *= 2
	}
	failed, err := p.Check(ctx, can, o.Seed, each, sequencesAtOnce)
	c := report.Contract{Strategy: choice.Strategy.Name, Store: choice.Store, Sequences: each}
	err = judge(ctx, &c, failed, cmp.Or(err, p.Proves()))
	return c, err
}

// judge adds what was found, or why nothing is known. The error is that of ctx.
func judge(ctx context.Context, c *report.Contract, failed *contract.Failure, unproven error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case failed != nil:
		c.Wrong, c.Sequence, c.Curl = failed.Wrong.Error(), failed.Text(), failed.Curl
	case unproven != nil:
		c.NotJudged = unproven.Error()
	}
	return nil
}

// siteOf tells how the replicas are reached, without nginx.
func siteOf(t *topology.Topology) (*contract.Site, func(), error) {
	var items atomic.Int64
	items.Store(time.Now().UnixMicro()) // no load uses these ids, and no other call
	site := &contract.Site{
		HTTP: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: strategiesAtOnce * sequencesAtOnce}},
		Ways: map[string]contract.Way{}, NewItem: func() int64 { return items.Add(1) },
	}
	for _, replica := range t.Replicas {
		site.Replicas, site.Admins = append(site.Replicas, replica.URL), append(site.Admins, replica.AdminURL)
	}
	config, err := t.Account.MySQLConfig(t.MySQLDSN)
	if err != nil {
		return nil, nil, err
	}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, nil, err
	}
	stores := contract.Stores{
		DB: sql.OpenDB(connector), Redis: redis.NewUniversalClient(t.Account.RedisOptions(t.Redis...)),
		Prefix: t.KeyPrefix,
	}
	site.LetPass = func(ctx context.Context, q contract.Request, items []int64, prefix string) error {
		return stores.Age(ctx, q.Time, items, prefix)
	}
	site.Pending = stores.Pending
	return site, func() { stores.DB.Close(); stores.Redis.Close() }, nil
}
