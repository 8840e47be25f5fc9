package httpapi_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"stock/internal/stock"
)

// sendRaw sends text, ends its side of the connection, and returns the status and the body of the reply.
func sendRaw(t *testing.T, url, text string) (status int, body string) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(raw)
}

// The part that arrives may be a complete JSON object. The end of the connection also cancels the request, so that the
// strategy can no longer get a lock or a connection.
func TestAnIncompleteBodyIsMalformed(t *testing.T) {
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
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status, body := sendRaw(t, r.public, text)
			if status != http.StatusBadRequest || !strings.Contains(body, "/problems/malformed") {
				t.Errorf("got %d %s, want 400 malformed", status, body)
			}
		})
	}
	t.Cleanup(func() {
		if strings.Contains(r.log.String(), "level=WARN") {
			t.Errorf("an incomplete body is logged as a warning: %s", r.log)
		}
	})
}

func TestAnIncompleteBodyDeductsNothing(t *testing.T) {
	t.Parallel()
	r := newReplica(t, options{deps: stock.Deps{MySQL: database(t)}})
	for range 20 {
		sendRaw(t, r.public, "POST /stock/deduct/update HTTP/1.1\r\nHost: stock\r\nContent-Type: application/json\r\n"+
			"Content-Length: 25\r\n\r\n"+`{"goods_id":1,"count":1}`)
	}
	if left := get(t, r.public+"/stock/1").text(t, "stock"); left != "6000" {
		t.Errorf("%s units are left, want all 6000", left)
	}
}

func TestUnitsAreReservedForMaxTTLAtMost(t *testing.T) {
	t.Parallel()
	r := newReplica(t, options{deps: stock.Deps{MySQL: database(t)}, maxTTL: time.Second})
	post(t, r.public+reservations, `{"goods_id":1,"count":1,"ttl_ms":1000}`).want(t, 201, "")
	got := post(t, r.public+reservations, `{"goods_id":1,"count":1,"ttl_ms":1001}`).want(t, 400, "malformed")
	if !strings.Contains(string(got.raw), "it must be 100 to 1000") {
		t.Errorf("got %s", got.raw)
	}
}

func TestHoldIsAcceptedOnlyUpToMaxHold(t *testing.T) {
	t.Parallel()
	deps := stock.Deps{MySQL: database(t)}
	without := newReplica(t, options{deps: deps, maxHold: -1})
	limited := newReplica(t, options{deps: deps, maxHold: 20 * time.Millisecond})
	for _, test := range []struct {
		name   string
		on     *replica
		hold   string
		status int
		detail string
	}{
		{name: "0 without --max-hold", on: without, hold: "0", status: 200},
		{
			name: "1 without --max-hold", on: without, hold: "1", status: 400,
			detail: "hold_ms is 1: this replica accepts none, see --max-hold",
		},
		{name: "at the limit", on: limited, hold: "20", status: 200},
		{
			name: "above the limit", on: limited, hold: "21", status: 400,
			detail: "hold_ms is 21: this replica accepts at most 20",
		},
		{name: "negative", on: limited, hold: "-1", status: 400, detail: "hold_ms is -1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			slug := ""
			if test.status == 400 {
				slug = "malformed"
			}
			for _, req := range []request{
				{method: "POST", url: test.on.public + "/stock/deduct/update?goods_id=1&count=1&hold_ms=" + test.hold},
				{
					method: "POST", url: test.on.public + "/stock/orders/update",
					body: `{"lines":[{"goods_id":1,"count":1}],"hold_ms":` + test.hold + `}`,
				},
			} {
				got := do(t, req).want(t, test.status, slug)
				if !strings.Contains(string(got.raw), test.detail) {
					t.Errorf("%s: got %s, want %q in it", req.url, got.raw, test.detail)
				}
			}
		})
	}
}

func TestTheRootRedirectsToTheDocs(t *testing.T) {
	t.Parallel()
	r := newReplica(t, options{})
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Get(r.public + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if location := response.Header.Get("Location"); response.StatusCode != http.StatusFound || location != "/docs" {
		t.Errorf("got %s to %q, want 302 to /docs", response.Status, location)
	}
}
