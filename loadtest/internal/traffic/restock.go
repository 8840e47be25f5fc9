package traffic

import (
	"context"
	"fmt"
	"sync"
	"time"

	"stock/loadtest/internal/history"
)

// Restock describes what is put back during a load, so that deductions race with it and the stock returns to earlier
// values.
type Restock struct {
	Admin string        // URL of a replica's admin listener
	Store string        // where to put the units
	Units int64         // each time, of one item; the items take turns
	Every time.Duration // between one time and the next
}

// restock puts units back until the returned function is called, which returns what was done.
func (l Load) restock(ctx context.Context) (stop func() []history.Op, err error) {
	if l.Restock == nil {
		return func() []history.Op { return nil }, nil
	}
	l.Service = nil
	u, end, err := oneUser(ctx, l.Restock.Admin, l)
	if err != nil {
		return nil, err
	}
	over := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { u.restockUntil(ctx, over) })
	return func() []history.Op {
		close(over)
		wg.Wait()
		end()
		return u.run.collect(nil)
	}, nil
}

// restockUntil puts units back at each tick, until over is closed or ctx ends.
func (u *user) restockUntil(ctx context.Context, over <-chan struct{}) {
	load := u.run.load
	tick := time.NewTicker(load.Restock.Every)
	defer tick.Stop()
	goods := load.Mix.Goods()
	for n := 0; ; n++ {
		select {
		case <-tick.C:
		case <-over:
			return
		case <-ctx.Done():
			return
		}
		u.send(ctx, history.Op{
			Kind:    history.Restock,
			Name:    fmt.Sprintf("%s-back-%d", load.RequestPrefix, n),
			GoodsID: goods[n%len(goods)],
			Count:   load.Restock.Units,
		})
	}
}
