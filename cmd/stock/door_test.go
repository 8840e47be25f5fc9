package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"stock/internal/must"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
	"stock/nginx"
)

// behindNginx starts nginx in front of a replica, and returns the host:port of each.
func behindNginx(t *testing.T, p *program) (balancer, replica string) {
	t.Helper()
	serverstest.Long(t)
	replica, balancer = strings.TrimPrefix(p.url, "http://"), serverstest.FreeAddress(t)
	server, err := servers.StartNginx(t.Context(), servers.NginxOptions{
		Main:  nginx.Main(),
		Sites: nginx.Render("stock", balancer, []string{replica}),
		Ready: []string{"http://" + balancer + "/livez"},
	})
	must.Succeed(t, err)
	serverstest.StopAfterTest(t, server)
	return balancer, replica
}

// drip sends a drop every 200 ms until the other side has closed the connection, or a minute has passed. It returns the
// status of the reply, or 0. Without a drop, it waits for the reply only.
func drip(t *testing.T, address, request, drop string) (ended bool, status int) {
	t.Helper()
	started := time.Now()
	conn, err := net.Dial("tcp", address)
	if err == nil {
		defer conn.Close()
		_, err = io.WriteString(conn, request)
	}
	if err != nil {
		t.Error(err)
		return false, 0
	}
	reply := make(chan int, 1)
	go func() {
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			reply <- 0
			return
		}
		response.Body.Close()
		reply <- response.StatusCode
	}()
	for !ended && time.Since(started) < time.Minute {
		time.Sleep(200 * time.Millisecond)
		_, err := io.WriteString(conn, drop)
		ended = err != nil || drop == "" && len(reply) > 0
	}
	conn.Close()
	return ended, <-reply
}

// A client that gets no further is a fault, an error of its own, or an attack.
func TestARequestThatDripsIsEndedInTime(t *testing.T) {
	t.Parallel()
	balancer, replica := behindNginx(t, launch(t, migrated(t), "serve"))
	var dripping sync.WaitGroup // at once: they only wait
	const (
		deduct  = "POST /stock/deduct/update HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
		sized   = "Content-Length: 4000\r\n\r\n"
		chunked = "Transfer-Encoding: chunked\r\n\r\n"
	)
	for _, test := range []struct {
		name, request, drop string
		status              int
	}{
		{"request line", "GET /", "a", 0},
		{"header", "GET /livez HTTP/1.1\r\nHost: a\r\nX: ", "a", 0},
		{"body", deduct + sized, " ", 400},
		{"chunks", deduct + chunked, "1\r\n \r\n", 400},
		{"chunk extension", deduct + chunked + "1;", "a", 400},
		{"trailer", deduct + chunked + "0\r\nX: ", "a", 400},
		{"body that stops", deduct + sized + "{", "", 400},
		{"body that is not read", "GET /livez HTTP/1.1\r\nHost: a\r\n" + sized, " ", 200},
		{"body of a path that does not exist", "POST /nowhere HTTP/1.1\r\nHost: a\r\n" + sized, " ", 404},
		{"body that is too large", deduct + "Content-Length: 9000000\r\n\r\n", " ", 413},
	} {
		for at, address := range map[string]string{"nginx": balancer, "replica": replica} {
			dripping.Go(func() {
				ended, status := drip(t, address, test.request, test.drop)
				if !ended || at == "nginx" && status != test.status {
					t.Errorf("%s to %s: ended: %v, with status %d, want %d", test.name, at, ended, status, test.status)
				}
			})
		}
	}
	dripping.Wait()
}

func TestARequestMayTakeLongerThanItMayTakeToArrive(t *testing.T) {
	serverstest.Long(t)
	t.Parallel()
	o := serveOptions{}
	o.RequestTimeout, o.Log = time.Minute, slog.New(slog.DiscardHandler)
	s := o.publicServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case <-r.Context().Done():
			t.Errorf("the request was cancelled: %v", context.Cause(r.Context()))
		case <-time.After(readTimeout + time.Second):
		}
	}), nil)
	base, err := s.start("127.0.0.1:0", make(chan error, 1))
	must.Succeed(t, err)
	defer s.Close()
	response, err := http.Post(base, "application/json", strings.NewReader("{}"))
	must.Succeed(t, err)
	response.Body.Close()
}

// problemOf sends the bytes of a request, and returns its reply, which must be a problem with a request id.
func problemOf(t *testing.T, address, request string) (status int, kind, detail string) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	must.Succeed(t, err)
	defer conn.Close()
	must.Succeed(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	_, err = io.WriteString(conn, request)
	must.Succeed(t, err)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	must.Succeed(t, err)
	defer response.Body.Close()
	var problem struct {
		Type, Detail string
		Status       int
		RequestID    string `json:"request_id"`
	}
	body, err := io.ReadAll(response.Body)
	must.Succeed(t, err)
	if err := json.Unmarshal(body, &problem); err != nil || problem.Status != response.StatusCode ||
		response.Header.Get("Content-Type") != "application/problem+json" ||
		problem.RequestID == "" || problem.RequestID != response.Header.Get("X-Request-Id") {
		t.Errorf("the reply is no problem with a request id: %d %v %s", response.StatusCode, response.Header, body)
	}
	return response.StatusCode, problem.Type, problem.Detail
}

func TestARequestThatGoCannotParseIsAnsweredWithAProblem(t *testing.T) {
	t.Parallel()
	replica := strings.TrimPrefix(launch(t, nil, "serve").url, "http://")
	const get, host = "GET /livez HTTP/1.1\r\n", "Host: a\r\n"
	for name, test := range map[string]struct {
		request string
		status  int
	}{
		"control character in a header":  {get + host + "X-Note: a\x01b\r\n\r\n", 400},
		"DEL in a header":                {get + host + "User-Agent: \x7f\r\n\r\n", 400},
		"malformed escape in a fragment": {"GET /livez#%zz HTTP/1.1\r\n" + host + "\r\n", 400},
		"trailer that is forbidden": {
			"POST /livez HTTP/1.1\r\n" + host + "Trailer: Content-Length\r\nTransfer-Encoding: chunked\r\n\r\n", 400,
		},
		"no HTTP":          {"rubbish\r\n\r\n", 400},
		"no host":          {get + "\r\n", 400},
		"name of a header": {get + host + "a b: c\r\n\r\n", 400},
		"unknown coding":   {"POST /livez HTTP/1.1\r\n" + host + "Transfer-Encoding: gzip\r\n\r\n", 501},
		"version":          {"GET /livez HTTP/3.0\r\n" + host + "\r\n", 505},
		"long header":      {get + host + "X: " + strings.Repeat("a", 40_000) + "\r\n\r\n", 431},
	} {
		status, kind, detail := problemOf(t, replica, test.request)
		if status != test.status || kind != "/problems/malformed" {
			t.Errorf("%s: %d %s %s, want %d malformed", name, status, kind, detail, test.status)
		}
	}
}

func TestAKeyThatNginxDropsDoesNotLetARequestSellWithoutOne(t *testing.T) {
	t.Parallel()
	p := launch(t, migrated(t), "serve", "--require-key")
	balancer, _ := behindNginx(t, p)
	const (
		json    = "POST /stock/deduct/update HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
		chunked = "Transfer-Encoding: chunked\r\n\r\n18\r\n" + `{"goods_id":1,"count":1}` + "\r\n0\r\n"
		query   = "POST /stock/deduct/update?goods_id=1&count=1 HTTP/1.1\r\nHost: a\r\n"
	)
	for request, want := range map[string]string{
		query + "Idempotency_Key: a\r\n\r\n":                                           "is named Idempotency_key",
		query + "X-Idempotency-Key: a\r\n\r\n":                                         "is named X-Idempotency-Key",
		json + chunked + "Idempotency-Key: a\r\n\r\n":                                  "is missing", // it is dropped
		json + "Trailer: Idempotency-Key\r\n" + chunked + "Idempotency-Key: a\r\n\r\n": "not a trailer",
	} {
		status, kind, detail := problemOf(t, balancer, request)
		if status != http.StatusBadRequest || !strings.Contains(detail, want) {
			t.Errorf("%q: %d %s %s, want 400 and %s", request, status, kind, detail, want)
		}
	}
	if left := p.expect(t, "GET", p.url+"/stock/1", 200)["stock"]; left != 6000.0 {
		t.Errorf("%v units are left, want all 6000", left)
	}
}

// nginx decodes a path and resolves its dots, to find the location, and refuses one that leaves the root.
func TestASaleWithAnyKeyThatIsAcceptedCanBeCancelledThroughNginx(t *testing.T) {
	t.Parallel()
	p := launch(t, migrated(t), "serve")
	balancer, _ := behindNginx(t, p)
	keys := []string{".", "..", "../..", "a/../../../../b", "/..", "../../nginx/problem", "...", "a//b", "%2F", "a/.b/c."}
	for c := ' '; c <= '~'; c++ {
		keys = append(keys, string(c), fmt.Sprintf("a%[1]cb%[1]c", c))
	}
	quote := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	refused := 0
	for _, key := range keys {
		header := `"` + quote.Replace(key) + `"`
		buy := "http://" + balancer + "/stock/deduct/update?goods_id=1&count=1"
		status, body := p.call("POST", buy, "Idempotency-Key", header)
		if status == http.StatusBadRequest {
			refused++
			continue
		}
		sale := "http://" + balancer + "/stock/sales/" + url.PathEscape(key)
		cancelled, answer := p.call("POST", sale+"/cancel?strategy=update")
		if status != http.StatusOK || cancelled != http.StatusOK || answer["state"] != "cancelled" {
			t.Errorf("the key %s: sold with %d %v, cancelled with %d %v", header, status, body, cancelled, answer)
		}
	}
	if refused != 7 { // the first six, and "."
		t.Errorf("%d keys are refused, want 7", refused)
	}
}
