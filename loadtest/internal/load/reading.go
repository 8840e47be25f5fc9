package load

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"time"

	"stock/internal/monotonic"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/oracle"
	"stock/loadtest/internal/service"
	"stock/loadtest/internal/traffic"
)

// stockReader reads the stock of one store.
type stockReader struct {
	witness string // who reads it, as the history records it
	store   string
	own     *service.Running // in place of source; nil: the service is none of the user's
	source  interface {
		Stock(ctx context.Context, store string, goods []int64) (map[int64]int64, error)
	}
}

func (s stockReader) read(ctx context.Context, goods []int64) (map[int64]int64, error) {
	if s.own != nil {
		return s.own.ReadStock(ctx, goods)
	}
	return s.source.Stock(ctx, s.store, goods)
}

// reader returns a reader of a store. It is the oracle's if the oracle can see the store, else the service's. For the
// baseline, which has no store, it reads the store of another strategy.
func (r *Runner) reader(store string) stockReader {
	if own := r.target.Own; own != nil {
		reader := stockReader{witness: history.WitnessOracle, store: store, own: own}
		if own.Stock.HTTP != nil {
			reader.witness = history.WitnessService
		}
		return reader
	}
	if !slices.Contains(oracle.Stores, store) {
		store = oracle.MySQL
		for _, choice := range r.config.Choices {
			if !choice.Strategy.Baseline() {
				store = choice.Store
				break
			}
		}
	}
	if r.target.Oracle.Sees(store) {
		return stockReader{witness: history.WitnessOracle, store: store, source: r.target.Oracle}
	}
	return stockReader{witness: history.WitnessService, store: store, source: r.target.Service}
}

// patience says how long the stock is watched after a run until it is taken as final.
type patience struct {
	quietKnown time.Duration // it must be unchanged for this long if every outcome is known
	quiet      time.Duration // it must be unchanged for this long if an outcome is unknown, or once the stock has changed
	service    time.Duration // the service gives up this long after a request was sent
	limit      time.Duration // give up after this long, or after the timeout of a request if that is longer
}

var usualPatience = patience{
	quietKnown: 20 * time.Millisecond,
	quiet:      time.Second,
	service:    15 * time.Second,
	limit:      20 * time.Second,
}

// finalStock reads the stock when it has stopped changing; nil if it never does. A request with an unknown outcome
// may still be in progress in the service.
func (c *cellRun) finalStock(ctx context.Context) (map[int64]int64, error) {
	quiet, inProgress := c.patience.quietKnown, int64(0)
	for _, op := range c.result.Ops {
		if op.Outcome != history.Unknown {
			continue
		}
		quiet = c.patience.quiet
		if op.Error == traffic.TimedOut || op.Status == http.StatusGatewayTimeout {
			inProgress = max(inProgress, op.SentNS+int64(c.patience.service))
		}
	}
	last, err := c.stock.read(ctx, c.mix.Goods())
	if err != nil {
		return nil, err
	}
	since := monotonic.Now()
	deadline := since + int64(max(c.patience.limit, c.config.Timeout))
	for {
		if err := monotonic.Sleep(ctx, min(quiet, 100*time.Millisecond)); err != nil {
			return nil, err
		}
		stock, err := c.stock.read(ctx, c.mix.Goods())
		if err != nil {
			return nil, err
		}
		now := monotonic.Now()
		if !maps.Equal(stock, last) {
			last, since, quiet = stock, now, c.patience.quiet
		}
		switch {
		case now-since >= int64(quiet) && now >= inProgress:
			return last, nil
		case now >= deadline:
			return nil, nil
		}
	}
}

// finalStocks reads the stock when it has stopped changing, as finalStock does. For a strategy that also writes to
// MySQL, it reads that of the store that sells, too. If they differ, they agreed too early: by chance, with sales and
// restocks still to be written, whose units add up to nothing.
func (c *cellRun) finalStocks(ctx context.Context) (final, seller map[int64]int64, err error) {
	for {
		final, err = c.finalStock(ctx)
		if err != nil || final == nil || !c.row.updates() {
			return final, nil, err
		}
		seller, err = c.reader(c.row.Store).read(ctx, c.mix.Goods())
		if err != nil || !c.agreed || maps.Equal(seller, final) {
			return final, seller, err
		}
		if err := c.drain(ctx); err != nil {
			return nil, nil, err
		}
	}
}

// drain waits until every sale of a strategy that also writes to MySQL is there: both stores then have the same stock.
// A sale is not durable before that, so the time counts as part of the run: it ends when a store last changed. If the
// stores stop changing without agreeing, drain returns, and the judge finds the difference.
func (c *cellRun) drain(ctx context.Context) error {
	if !c.row.updates() {
		return nil
	}
	began := time.Now()
	defer func() { c.took += time.Since(began) }()
	seller, goods := c.reader(c.row.Store), c.mix.Goods()
	var lastSold, lastDurable map[int64]int64
	var changedNS int64
	for {
		sold, err := seller.read(ctx, goods)
		if err != nil {
			return err
		}
		durable, err := c.stock.read(ctx, goods)
		if err != nil {
			return err
		}
		now := monotonic.Now()
		if !maps.Equal(sold, lastSold) || !maps.Equal(durable, lastDurable) {
			lastSold, lastDurable, changedNS = sold, durable, now
		}
		c.agreed = maps.Equal(sold, durable)
		if c.agreed || now-changedNS > int64(c.patience.limit) {
			c.result.EndedNS = changedNS
			return nil
		}
		if err := monotonic.Sleep(ctx, 2*time.Millisecond); err != nil {
			return err
		}
	}
}
