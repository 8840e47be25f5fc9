package traffic

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
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

// restocker puts units back during a load.
type restocker struct {
	load       Load
	server     server
	connection *connection
	reader     replyReader
	ops        []history.Op
}

// restock puts units back until the returned function is called, which returns what was done.
func (l Load) restock(ctx context.Context) (stop func() []history.Op, err error) {
	if l.Restock == nil {
		return func() []history.Op { return nil }, nil
	}
	admin, err := newServer(l.Restock.Admin)
	if err != nil {
		return nil, err
	}
	r := &restocker{load: l, server: admin, connection: newConnection(admin)}
	uncut := context.AfterFunc(ctx, r.connection.cut)
	over := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { r.run(ctx, over) })
	return func() []history.Op {
		close(over)
		wg.Wait()
		uncut()
		r.connection.close()
		return r.ops
	}, nil
}

// run puts units back at each tick, until over is closed or ctx ends.
func (r *restocker) run(ctx context.Context, over <-chan struct{}) {
	tick := time.NewTicker(r.load.Restock.Every)
	defer tick.Stop()
	goods := r.load.Mix.Goods()
	for n := 0; ; n++ {
		select {
		case <-tick.C:
		case <-over:
			return
		case <-ctx.Done():
			return
		}
		op := history.Op{
			Kind:    history.Restock,
			Name:    fmt.Sprintf("%s-back-%d", r.load.RequestPrefix, n),
			GoodsID: goods[n%len(goods)],
			Count:   r.load.Restock.Units,
		}
		r.putBack(ctx, &op)
		r.ops = append(r.ops, op)
	}
}

// putBack sends the restock that op describes, and records its answer there.
func (r *restocker) putBack(ctx context.Context, op *history.Op) {
	path := fmt.Sprintf("/admin/stock/%d/restock?store=%s", op.GoodsID, url.QueryEscape(r.load.Restock.Store))
	body := fmt.Appendf(nil, `{"count":%d}`, op.Count)
	request := appendRequest(nil, r.server.header(http.MethodPost, path), []byte(op.Name), nil, body)
	if r.connection.exchange(ctx, request, r.load.Timeout, op) {
		r.reader.readRestocked(op, &r.connection.reply)
	}
}
