package nginx_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"stock/internal/must"
	"stock/internal/servers/serverstest"
	"stock/nginx"
)

// rawReply is what nginx answers to the bytes of a request.
type rawReply struct {
	*http.Response
	body    string
	problem struct {
		Type, Title, Detail string
		Status              int
		RequestID           string `json:"request_id"`
	}
}

func (r rawReply) wantProblem(t *testing.T, status int, kind string) {
	t.Helper()
	if r.StatusCode != status || r.Header.Get("Content-Type") != "application/problem+json" ||
		r.problem.Status != status || r.problem.Type != "/problems/"+kind {
		t.Errorf("the reply is %d %s %s, want the problem %d %s",
			r.StatusCode, r.Header.Get("Content-Type"), r.body, status, kind)
	}
	if r.problem.Title == "" || r.problem.Detail == "" {
		t.Errorf("the problem lacks a title or a detail: %s", r.body)
	}
	if r.problem.RequestID == "" || r.problem.RequestID != r.Header.Get("X-Request-Id") {
		t.Errorf("the problem has the request id %q and the reply %q, want both the same",
			r.problem.RequestID, r.Header.Get("X-Request-Id"))
	}
}

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	must.Succeed(t, err)
	t.Cleanup(func() { conn.Close() })
	must.Succeed(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	return conn
}

func write(t *testing.T, conn net.Conn, request string) {
	t.Helper()
	_, err := io.WriteString(conn, request)
	must.Succeed(t, err)
}

// ask sends a request on a new connection and returns the reply.
func ask(t *testing.T, address, request string) rawReply {
	t.Helper()
	conn := dial(t, address)
	write(t, conn, request)
	reply, err := parse(conn)
	must.Succeed(t, err)
	return reply
}

func parse(conn net.Conn) (reply rawReply, err error) {
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return reply, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	reply.Response, reply.body = response, string(body)
	_ = json.Unmarshal(body, &reply.problem)
	return reply, err
}

func TestARequestThatNginxRefusesIsAnsweredWithAProblem(t *testing.T) {
	t.Parallel()
	replica := startReplica(t, ok)
	_, address := start(t, nginx.Main(), replica.address())
	long := strings.Repeat("a", 40_000)
	const host = "Host: a\r\n\r\n"
	for _, test := range []struct {
		name, request string
		status        int
		kind          string
	}{
		{"no HTTP", "rubbish\r\n\r\n", 400, "malformed"},
		{"TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n", 400, "malformed"},
		{"malformed escape", "GET /%zz HTTP/1.1\r\n" + host, 400, "malformed"},
		{"no host", "GET / HTTP/1.1\r\n\r\n", 400, "malformed"},
		{"two hosts", "GET / HTTP/1.1\r\nHost: a\r\n" + host, 400, "malformed"},
		{"malformed length", "POST / HTTP/1.1\r\nContent-Length: x\r\n" + host, 400, "malformed"},
		{"malformed chunk", "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" + host + "zz\r\n", 400, "malformed"},
		{"long header", "GET / HTTP/1.1\r\nX: " + long + "\r\n" + host, 431, "malformed"},
		{"long path", "GET /" + long + " HTTP/1.1\r\n" + host, 414, "malformed"},
		{"unknown coding", "POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n" + host, 501, "malformed"},
		{"unknown version", "GET / HTTP/9.9\r\n" + host, 505, "malformed"},
		{"TRACE", "TRACE / HTTP/1.1\r\n" + host, 405, "method-not-allowed"},
		{"long body", "POST / HTTP/1.1\r\nContent-Length: 2000000\r\n" + host, 413, "too-large"},
		{"path of nginx itself", "GET /nginx/problem HTTP/1.1\r\n" + host, 404, "not-found"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			ask(t, address, test.request).wantProblem(t, test.status, test.kind)
		})
	}
	t.Cleanup(func() { replica.wantRead(t, 0) })
}

// Go's HTTP server would refuse these with a bare text, before the service sees them.
func TestWhatGoRefusesWithoutAProblemDoesNotReachIt(t *testing.T) {
	t.Parallel()
	replica := httptest.NewUnstartedServer(http.HandlerFunc(ok))
	replica.Config.MaxHeaderBytes = 16 << 10 // as in the service
	replica.Start()
	t.Cleanup(replica.Close)
	_, address := start(t, nginx.Main(), strings.TrimPrefix(replica.URL, "http://"))
	for name, request := range map[string]string{
		"HTTP/1.0 without a host": "GET / HTTP/1.0\r\n\r\n",
		"malformed host":          "GET / HTTP/1.1\r\nHost: \"<x>\"\r\n\r\n",
		"unknown expectation":     "GET / HTTP/1.1\r\nHost: a\r\nExpect: luck\r\n\r\n",
	} {
		if got := ask(t, address, request); got.StatusCode != http.StatusOK {
			t.Errorf("%s: the reply is %d %s, want 200", name, got.StatusCode, got.body)
		}
	}
	for size := 12_000; size < 36_000; size += 1000 {
		var header strings.Builder
		for i := 0; header.Len() < size; i++ {
			fmt.Fprintf(&header, "X-%d: %s\r\n", i, strings.Repeat("a", 990))
		}
		got := ask(t, address, "GET / HTTP/1.1\r\nHost: a\r\n"+header.String()+"\r\n")
		if got.StatusCode != http.StatusOK {
			got.wantProblem(t, http.StatusRequestHeaderFieldsTooLarge, "malformed")
		}
	}
}

const post = "POST / HTTP/1.1\r\nHost: a\r\nX-Request-Id: order-1\r\nContent-Length: 2\r\n\r\n{}"

func TestARequestThatReachesNoReplicaIsRefused(t *testing.T) {
	t.Parallel()
	address, other := serverstest.FreeAddress(t), serverstest.FreeAddress(t)
	_, balancer := start(t, nginx.Main(), address, other)
	got := ask(t, balancer, post)
	got.wantProblem(t, http.StatusServiceUnavailable, "unavailable")
	if got.problem.RequestID != "order-1" || got.Header.Get("Retry-After") != "1" {
		t.Errorf("the request id is %q, and Retry-After is %q", got.problem.RequestID, got.Header.Get("Retry-After"))
	}
}

// nginx counts 0 bytes for the first replica, which refuses the connection.
func TestTheOutcomeIsUnknownIfAReplicaDiesAfterReadingTheRequest(t *testing.T) {
	t.Parallel()
	for _, others := range [][]string{nil, {serverstest.FreeAddress(t)}} {
		dying := startReplica(t, die)
		_, balancer := start(t, nginx.Main(), append(others, dying.address())...)
		got := ask(t, balancer, post)
		got.wantProblem(t, http.StatusBadGateway, "outcome-unknown")
		if n := dying.read.Load(); n != 1 || got.problem.RequestID != "order-1" || got.Header.Get("Retry-After") != "" {
			t.Errorf("the replica read %d requests; the request id is %q, and Retry-After is %q",
				n, got.problem.RequestID, got.Header.Get("Retry-After"))
		}
	}
}

// A quote would break the JSON of a problem.
func TestARequestIDWithAQuoteIsReplacedByOneThatTheReplicaAndTheClientGet(t *testing.T) {
	t.Parallel()
	received := make(chan string, 1)
	_, balancer := start(t, nginx.Main(), startReplica(t, func(w http.ResponseWriter, r *http.Request) {
		received <- r.Header.Get("X-Request-Id")
		die(w, r)
	}).address())
	got := ask(t, balancer, strings.Replace(post, "order-1", `order"1`, 1))
	got.wantProblem(t, http.StatusBadGateway, "outcome-unknown")
	if id := <-received; len(id) != 32 || got.problem.RequestID != id {
		t.Errorf("the replica got the request id %q and the client %q, want the same new one", id, got.problem.RequestID)
	}
}

// nginx logs a warning when it writes a body to a file.
func TestABodyAsLargeAsTheServiceAllowsIsNotWrittenToAFile(t *testing.T) {
	t.Parallel()
	const limit = 16 << 10
	server, balancer := start(t, nginx.Main(), startReplica(t, ok).address())
	for size, want := range map[int]int{limit: http.StatusOK, limit + 1: http.StatusRequestEntityTooLarge} {
		header := fmt.Sprintf("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", size)
		if got := ask(t, balancer, header+strings.Repeat(" ", size)); got.StatusCode != want {
			t.Errorf("a body of %d bytes is answered with %d %s, want %d", size, got.StatusCode, got.body, want)
		}
	}
	if log := server.Tail(20); strings.Contains(log, "temporary file") {
		t.Errorf("nginx wrote a body to a file: %s", log)
	}
}

// nginx itself has the status 500 for this.
func TestARequestForWhichNginxHasNoConnectionLeftIsRefused(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	entered := make(chan struct{}, 1)
	replica := startReplica(t, func(http.ResponseWriter, *http.Request) {
		entered <- struct{}{}
		<-release
	})
	t.Cleanup(func() { close(release) }) // before the replica is closed
	few := strings.NewReplacer("worker_processes auto", "worker_processes 1",
		"worker_connections 16384", "worker_connections 16").Replace(nginx.Main())
	_, address := start(t, few, replica.address())

	// Ten of 16 connections are those of clients, so that the last clients get none to the replica.
	var conns []net.Conn
	for range 10 {
		conn := dial(t, address)
		write(t, conn, post[:4])
		conns = append(conns, conn)
	}
	answers := make(chan rawReply, 10)
	for sent, conn := range conns {
		write(t, conn, post[4:])
		go func() {
			if reply, err := parse(conn); err == nil {
				answers <- reply
			}
		}()
		select {
		case <-entered:
		case got := <-answers:
			got.wantProblem(t, http.StatusServiceUnavailable, "unavailable")
			if n := replica.read.Load(); n != int64(sent) {
				t.Errorf("the replica read %d requests, want the %d before this one", n, sent)
			}
			return
		}
	}
	t.Error("nginx had connections for all clients")
}

func TestRepliesOfAReplicaAreLeftAlone(t *testing.T) {
	t.Parallel()
	replica := startReplica(t, func(w http.ResponseWriter, r *http.Request) {
		var status int
		if _, err := fmt.Sscanf(r.URL.Path, "/%d", &status); err != nil {
			t.Error(err)
		}
		w.WriteHeader(status)
		fmt.Fprint(w, "of the replica")
	})
	_, address := start(t, nginx.Main(), replica.address())
	for _, status := range []int{400, 404, 405, 413, 414, 431, 500, 501, 502, 503, 504, 505} {
		got := ask(t, address, fmt.Sprintf("GET /%d HTTP/1.1\r\nHost: a\r\n\r\n", status))
		if got.StatusCode != status || got.body != "of the replica" {
			t.Errorf("the reply is %d %s, want %d of the replica", got.StatusCode, got.body, status)
		}
	}
}
