package traffic

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"stock/loadtest/internal/history"
)

// Header values that all requests share. They must not be modified.
var (
	contentType = []string{"application/json"}
	accept      = []string{"application/json"}
	userAgent   = []string{"stock-loadtest"}
)

// request makes the request for a deduction or an order.
func (r *run) request(ctx context.Context, op *history.Op) *http.Request {
	id := op.Name
	if op.Again {
		id += "-again"
	}
	endpoint, body := r.driver.endpoint, make([]byte, 0, len(r.body)+48)
	if op.Kind == history.Order {
		endpoint, body = r.driver.orders, appendOrder(body, r.body, op.Lines)
	} else {
		body = appendBody(body, r.body, op.GoodsID, op.Count)
	}
	request := (&http.Request{
		Method: http.MethodPost,
		URL:    endpoint,
		Host:   endpoint.Host,
		Header: http.Header{
			"Content-Type": contentType,
			"Accept":       accept,
			"User-Agent":   userAgent,
			"X-Request-Id": {id},
		},
		// Without GetBody, the transport cannot send a body twice. With it, it would do so by itself for a request
		// that has an Idempotency-Key and whose connection broke, and the history would show one request instead of
		// two.
		Body:          io.NopCloser(bytes.NewReader(body)),
		ContentLength: int64(len(body)),
	}).WithContext(ctx)
	if r.load.Keys {
		request.Header["Idempotency-Key"] = []string{op.Name}
	}
	return request
}

// bodyPrefix is the body of a deduction up to its item, which all requests of a load share.
func bodyPrefix(load Load) []byte {
	var b strings.Builder
	b.WriteString(`{`)
	if load.Strategy != "" {
		fmt.Fprintf(&b, `"strategy":%q,`, load.Strategy)
	}
	if load.Store != "" {
		fmt.Fprintf(&b, `"store":%q,`, load.Store)
	}
	if load.Hold > 0 {
		fmt.Fprintf(&b, `"hold_ms":%d,`, load.Hold.Milliseconds())
	}
	b.WriteString(`"goods_id":`)
	return []byte(b.String())
}

// appendBody appends the body of a deduction.
func appendBody(body, prefix []byte, goodsID, count int64) []byte {
	body = append(body, prefix...)
	body = strconv.AppendInt(body, goodsID, 10)
	body = append(body, `,"count":`...)
	body = strconv.AppendInt(body, count, 10)
	return append(body, '}')
}
