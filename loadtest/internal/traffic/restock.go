package traffic

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"stock/internal/monotonic"
	"stock/loadtest/internal/history"
)

// Restock is what is put back during a load: deductions then race with it, and a stock that was read may come back.
type Restock struct {
	Admin string        // URL of a replica's admin listener
	Store string        // where to
	Units int64         // each time, of one goods; the goods take turns
	Every time.Duration // from one time to the next
}

// restock puts units back from now on, until the returned function is called. That one returns what was done.
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
				Kind: history.Restock, Order: fmt.Sprintf("%s-back-%d", r.load.OrderPrefix, n), GoodsID: goods[n%len(goods)], Count: config.Units,
			}))
		}
	})
	return func() []history.Op {
		close(over)
		wg.Wait()
		return ops
	}
}

// putBack carries out one restock and says what came of it. As with a deduction, it never tries twice.
func (r *run) putBack(ctx context.Context, op history.Op) history.Op {
	config := r.load.Restock
	ctx, cancel := context.WithTimeout(ctx, r.load.Timeout)
	defer cancel()
	address := fmt.Sprintf("%s/admin/stock/%d/restock?store=%s", config.Admin, op.GoodsID, url.QueryEscape(config.Store))
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader(fmt.Sprintf(`{"count":%d}`, op.Count)))
	if err != nil {
		op.Outcome, op.Error = history.Rejected, err.Error()
		return op
	}
	request.GetBody = nil // see user.sendOp
	request.Header = http.Header{"Content-Type": contentType, "Accept": accept, "User-Agent": userAgent, "X-Request-Id": {op.Order}}

	op.SentNS = monotonic.Now()
	response, err := r.driver.transport.RoundTrip(request)
	var body bytes.Buffer
	if err == nil {
		_, err = body.ReadFrom(io.LimitReader(response.Body, maxReply))
		response.Body.Close()
	}
	op.ReceivedNS = monotonic.Now()
	if err != nil {
		op.Outcome, op.Error = history.Unknown, explain(err)
		return op
	}
	op.Status, op.Replica, op.RequestID = response.StatusCode, first(response.Header, "X-Replica"), first(response.Header, "X-Request-Id")
	var told struct {
		Type  string `json:"type"`
		Stock *int64 `json:"stock"`
	}
	malformed := json.Unmarshal(body.Bytes(), &told) != nil
	op.Error = told.Type
	switch {
	case op.Status == http.StatusOK && !malformed && told.Stock != nil:
		op.Outcome, op.Remaining = history.Sold, *told.Stock
	case op.Status == http.StatusServiceUnavailable && (told.Type == problemBusy || told.Type == problemUnavailable):
		op.Outcome = history.Busy
	case op.Status >= 400 && op.Status < 500:
		op.Outcome = history.Rejected
	default:
		op.Outcome = history.Unknown
	}
	return op
}
