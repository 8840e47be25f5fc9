package httpapi_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"stock/internal/must"
	"stock/internal/stock"
)

// sendRaw sends text, ends its side of the connection, and returns the status and the body of the reply.
func sendRaw(t *testing.T, url, text string) (status int, body string) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	must.Succeed(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, text)
	must.Succeed(t, err)
	must.Succeed(t, conn.(*net.TCPConn).CloseWrite())
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	must.Succeed(t, err)
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	must.Succeed(t, err)
	return response.StatusCode, string(raw)
}

// The part of a body that arrives may be a complete JSON object. The end of the connection also cancels the request, so
// that the strategy can no longer get a lock or a connection.
func TestWhatNoClientLibrarySendsIsMalformed(t *testing.T) {
	t.Parallel()
	r := newReplica(t, options{deps: stock.Deps{MySQL: database(t)}})
	const (
		deduction = `{"goods_id":1,"count":1}`
		order     = `{"lines":[{"goods_id":1,"count":1}]}`
		json      = "Host: stock\r\nContent-Type: application/json\r\n"
		chunked   = json + "Transfer-Encoding: chunked\r\n\r\n"
		deduct    = "POST /stock/deduct/update HTTP/1.1\r\n"
		orders    = "POST /stock/orders/update HTTP/1.1\r\n"
		query     = "POST /stock/deduct/update?goods_id=1&count=1 HTTP/1.1\r\n"
	)
	for name, text := range map[string]string{
		"complete chunks beside a query":     query + chunked + "2\r\n{}\r\n0\r\n\r\n",
		"two keys":                           query + "Host: a\r\nIdempotency-Key: a\r\nIdempotency-Key: a\r\n\r\n",
		"key in a trailer":                   deduct + chunked + "18\r\n" + deduction + "\r\n0\r\nIdempotency-Key: a\r\n\r\n",
		"key in an announced trailer":        query + "Host: a\r\nTrailer: Expires, idempotency_key\r\n\r\n",
		"cut off":                            deduct + json + "Content-Length: 24\r\n\r\n" + deduction[:9],
		"cut off after the object":           deduct + json + "Content-Length: 25\r\n\r\n" + deduction,
		"without any byte":                   deduct + json + "Content-Length: 24\r\n\r\n",
		"order cut off after the object":     orders + json + "Content-Length: 99\r\n\r\n" + order,
		"without the last chunk":             deduct + chunked + "18\r\n" + deduction + "\r\n",
		"with a chunk of no size":            deduct + chunked + "18\r\n" + deduction + "\r\nx\r\n",
		"cut off in a chunk":                 deduct + chunked + "19\r\n" + deduction,
		"beside a query, without any chunk":  query + chunked,
		"beside a query, chunk of no size":   query + chunked + "x\r\n",
		"beside a query, without any byte":   query + json + "Content-Length: 24\r\n\r\n",
		"chunk that is longer than it says":  deduct + chunked + "17\r\n" + deduction + "\r\n0\r\n\r\n",
		"order with a chunk without an end":  orders + chunked + "24\r\n" + order,
		"order cut off in the first member":  orders + json + "Content-Length: 99\r\n\r\n" + `{"lin`,
		"order, chunk size is not a number":  orders + chunked + "zz\r\n" + order,
		"object in two chunks, one of which": deduct + chunked + "8\r\n" + deduction[:8] + "\r\n10\r\n" + deduction[8:12],
	} {
		for range 3 { // what arrives may be cancelled before, while or after it is read
			status, body := sendRaw(t, r.public, text)
			if status != http.StatusBadRequest || !strings.Contains(body, "/problems/malformed") {
				t.Errorf("%s: got %d %s, want 400 malformed", name, status, body)
			}
		}
	}
	if r.log.Count("level=WARN") > 0 {
		t.Errorf("an incomplete body is logged as a warning: %s", r.log)
	}
	if left := get(t, r.public+"/stock/1").text(t, "stock"); left != "6000" {
		t.Errorf("%s units are left, want all 6000", left)
	}
}

func TestLimitsOfTheReplica(t *testing.T) {
	t.Parallel()
	deps := stock.Deps{MySQL: database(t), LockWait: 1500 * time.Millisecond}
	without := newReplica(t, options{deps: deps, maxHold: -1})
	limited := newReplica(t, options{deps: deps, maxHold: 20 * time.Millisecond, maxTTL: time.Second})
	for _, test := range []struct {
		on             *replica
		member, detail string // no detail: it is accepted
	}{
		{without, `"hold_ms":0`, ""},
		{without, `"hold_ms":1`, "hold_ms is 1: this replica accepts none, see --max-hold"},
		{limited, `"hold_ms":20`, ""},
		{limited, `"hold_ms":21`, "hold_ms is 21: this replica accepts at most 20"},
		{limited, `"wait_ms":0`, ""},
		{limited, `"wait_ms":1500`, ""},
		{limited, `"wait_ms":1501`, "wait_ms is 1501: it must be 0 to 1500 on this replica, see --lock-wait"},
		{limited, `"wait_ms":-1`, "wait_ms is -1: it must be 0 to 1500"},
		{limited, `"wait_ms":9223372036854775808`, "whole number"},
		{limited, `"ttl_ms":1000`, ""},
		{limited, `"ttl_ms":1001`, "it must be 100 to 1000"},
	} {
		path, status, slug := "/stock/deduct/update", 200, ""
		if strings.Contains(test.member, "ttl_ms") {
			path, status = "/stock/reservations", 201
		}
		if test.detail != "" {
			status, slug = 400, "malformed"
		}
		got := post(t, test.on.public+path, `{"goods_id":1,"count":1,`+test.member+`}`).want(t, status, slug)
		if !strings.Contains(string(got.raw), test.detail) {
			t.Errorf("%s: got %s, want %q in it", test.member, got.raw, test.detail)
		}
	}
}
