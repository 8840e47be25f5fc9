package traffic

import (
	"fmt"
	"net/http"
	"net/url"
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

const (
	deductPath       = "/stock/deduct"
	reservationsPath = "/stock/reservations"
)

// route returns where a request of a kind is sent, and whether it has a body.
func (l *Load) route(op *history.Op) (method, path string, hasBody bool) {
	reservation := reservationsPath + "/" + op.Reservation
	switch op.Kind {
	case history.Order:
		return http.MethodPost, "/stock/orders", true
	case history.Restock:
		path := fmt.Sprintf("/admin/stock/%d/restock?store=%s", op.GoodsID, url.QueryEscape(l.Restock.Store))
		return http.MethodPost, path, true
	case history.CancelSale:
		return http.MethodPost, "/stock/sales/" + url.PathEscape(op.Name) + "/cancel", true
	case history.Hold:
		return http.MethodPost, reservationsPath, true
	case history.Confirm:
		return http.MethodPost, reservation + "/confirm" + l.query(), false
	case history.Cancel:
		return http.MethodDelete, reservation + l.query(), false
	case history.Inspect:
		return http.MethodGet, reservation + l.query(), false
	}
	return http.MethodPost, deductPath, true
}

// query names the strategy and the store of a request without a body.
func (l *Load) query() string {
	query := url.Values{}
	if l.Strategy != "" {
		query.Set("strategy", l.Strategy)
	}
	if l.Store != "" {
		query.Set("store", l.Store)
	}
	if len(query) == 0 {
		return ""
	}
	return "?" + query.Encode()
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

// bodyPrefix is the body of a request up to its items, which all requests of a load share.
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

// appendBody appends the body of a request.
func appendBody(body, prefix []byte, op *history.Op) []byte {
	if op.Kind == history.Restock {
		return append(appendMember(body, `{"count":`, op.Count), '}')
	}
	body = append(body, prefix...)
	if op.Kind == history.Order {
		body = append(body, `"lines":[`...)
		for i, line := range op.Lines {
			if i > 0 {
				body = append(body, ',')
			}
			body = appendMember(body, `{"goods_id":`, line.GoodsID)
			body = append(appendMember(body, `,"count":`, line.Count), '}')
		}
		return append(body, `]}`...)
	}
	body = appendMember(body, `"goods_id":`, op.GoodsID)
	if op.Kind == history.CancelSale {
		if op.Count != everything {
			body = appendMember(body, `,"cancelled":`, op.Count)
		}
		return append(body, '}')
	}
	body = appendMember(body, `,"count":`, op.Count)
	if op.Kind == history.Hold {
		body = appendMember(body, `,"ttl_ms":`, op.TTLMS)
	}
	return append(body, '}')
}

func appendMember(body []byte, name string, value int64) []byte {
	return strconv.AppendInt(append(body, name...), value, 10)
}
