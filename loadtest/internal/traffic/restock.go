package traffic

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
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
func (r *run) restock(ctx context.Context) (stop func() []history.Op) {
	config := r.load.Restock
	if config == nil {
		return func() []history.Op { return nil }
	}
	var ops []history.Op
	over := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(config.Every)
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
			ops = append(ops, r.putBack(ctx, history.Op{
				Kind:    history.Restock,
				Name:    fmt.Sprintf("%s-back-%d", r.load.RequestPrefix, n),
				GoodsID: goods[n%len(goods)],
				Count:   config.Units,
			}))
		}
	})
	return func() []history.Op {
		close(over)
		wg.Wait()
		return ops
	}
}

// putBack sends the restock that op describes, and returns it with its answer.
func (r *run) putBack(ctx context.Context, op history.Op) history.Op {
	config := r.load.Restock
	ctx, cancel := context.WithTimeout(ctx, r.load.Timeout)
	defer cancel()
	address := fmt.Sprintf("%s/admin/stock/%d/restock?store=%s", config.Admin, op.GoodsID, url.QueryEscape(config.Store))
	body := strings.NewReader(fmt.Sprintf(`{"count":%d}`, op.Count))
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, body)
	if err != nil {
		op.Outcome, op.Error = history.Rejected, err.Error()
		return op
	}
	request.GetBody = nil // see run.request
	request.Header = http.Header{
		"Content-Type": contentType,
		"Accept":       accept,
		"User-Agent":   userAgent,
		"X-Request-Id": {op.Name},
	}
	var buffer bytes.Buffer
	if header, ok := r.driver.exchange(request, &op, &buffer); ok {
		readRestocked(&op, header, buffer.Bytes())
	}
	return op
}
