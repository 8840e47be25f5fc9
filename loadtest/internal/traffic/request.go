package traffic

import (
	"fmt"
	"strconv"
	"strings"

	"stock/loadtest/internal/history"
)

// contentType is the media type of every request and, as far as it is accepted, of every reply.
const contentType = "application/json"

// requestID is the beginning of the last header of a request's header.
var requestID = []byte("X-Request-Id: ")

// header returns the beginning of a request, up to the value of X-Request-Id.
func (s server) header(method, path string) []byte {
	return fmt.Appendf(nil, "%s %s%s HTTP/1.1\r\nHost: %s\r\nContent-Type: %s\r\nAccept: %s\r\n"+
		"User-Agent: stock-loadtest\r\n%s", method, s.path, path, s.host, contentType, contentType, requestID)
}

// appendRequest appends a request that begins with the given header. key may be empty. Neither id nor key may contain
// what is special in HTTP.
func appendRequest(request, header, id, key, body []byte) []byte {
	request = append(request, header...)
	request = append(request, id...)
	if len(key) > 0 {
		request = append(request, "\r\nIdempotency-Key: "...)
		request = append(request, key...)
	}
	request = append(request, "\r\nContent-Length: "...)
	request = strconv.AppendInt(request, int64(len(body)), 10)
	request = append(request, "\r\n\r\n"...)
	return append(request, body...)
}

// bodyPrefix is the body of a deduction or an order up to its items, which all requests of a load share.
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
	return []byte(b.String())
}

// appendBody appends the body of a deduction. The name of a buyer must not contain what is special in JSON.
func appendBody(body, prefix []byte, op *history.Op) []byte {
	body = append(body, prefix...)
	body = append(body, `"goods_id":`...)
	body = strconv.AppendInt(body, op.GoodsID, 10)
	body = append(body, `,"count":`...)
	body = strconv.AppendInt(body, op.Count, 10)
	if op.Buyer != "" {
		body = append(body, `,"buyer":"`...)
		body = append(body, op.Buyer...)
		body = append(body, `","buyer_limit":`...)
		body = strconv.AppendInt(body, op.BuyerLimit, 10)
	}
	return append(body, '}')
}
