package nginx_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"stock/internal/must"
	"stock/nginx"
)

// drip sends the rest of a request byte by byte, a byte every tenth of a second, until nginx answers or closes the
// connection. It returns the status of the answer, 0 for none, and how long that took.
func drip(t *testing.T, conn net.Conn, rest string) (status int, took time.Duration) {
	t.Helper()
	began := time.Now()
	answered := make(chan int, 1)
	go func() {
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			answered <- 0
			return
		}
		defer response.Body.Close()
		_, _ = io.Copy(io.Discard, response.Body)
		answered <- response.StatusCode
	}()
	for i := 0; ; i++ {
		select {
		case status := <-answered:
			return status, time.Since(began)
		case <-time.After(100 * time.Millisecond):
			_, _ = io.WriteString(conn, rest[i%len(rest):][:1])
		}
	}
}

func TestAHeaderThatDripsIsCutOff(t *testing.T) {
	t.Parallel()
	_, address := start(t, nginx.Main(), startReplica(t, ok).address())
	conn := dial(t, address)
	write(t, conn, "POST / HTTP/1.1\r\nHost: a\r\nX: ")
	if status, took := drip(t, conn, "a"); status != http.StatusRequestTimeout && status != 0 || took > 20*time.Second {
		t.Errorf("after %v, the status is %d, want none or 408 after 5 s", took, status)
	}
}

// nginx bounds only the pause between two parts of a body, and the replica the whole of it.
func TestABodyThatDripsIsCutOffByTheReplica(t *testing.T) {
	t.Parallel()
	replica := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			w.WriteHeader(http.StatusBadRequest)
		}
	}))
	replica.Config.ReadTimeout = time.Second
	replica.Start()
	t.Cleanup(replica.Close)
	_, address := start(t, nginx.Main(), strings.TrimPrefix(replica.URL, "http://"))
	for _, framing := range []string{"Content-Length: 4000\r\n\r\n{", "Transfer-Encoding: chunked\r\n\r\nfff\r\n{"} {
		conn := dial(t, address)
		write(t, conn, "POST / HTTP/1.1\r\nHost: a\r\n"+framing)
		if status, took := drip(t, conn, " "); status != http.StatusBadRequest || took > 20*time.Second {
			t.Errorf("%q: after %v, the status is %d, want that of the replica after 1 s", framing, took, status)
		}
	}
}

func TestABodyThatStopsIsCutOff(t *testing.T) {
	t.Parallel()
	_, address := start(t, nginx.Main(), startReplica(t, ok).address())
	conn := dial(t, address)
	write(t, conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4000\r\n\r\n{")
	began := time.Now()
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err == nil && response.StatusCode != http.StatusRequestTimeout || time.Since(began) > 20*time.Second {
		t.Errorf("after %v: %v, %v, want none or 408 after 5 s", time.Since(began), response, err)
	}
}

// A body is passed on as it arrives, so nginx tries the replicas before it has the body.
func TestADeadReplicaCostsNoRequestWhoseBodyComesLater(t *testing.T) {
	t.Parallel()
	dead, alive := startReplica(t, ok), startReplica(t, ok)
	dead.Close()
	_, address := start(t, nginx.Main(), dead.address(), alive.address())
	for range 6 {
		conn := dial(t, address)
		write(t, conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 24\r\n\r\n")
		time.Sleep(20 * time.Millisecond) // most of the time, nginx has found a replica by then; both orders must work
		write(t, conn, `{"goods_id":1,"count":1}`)
		reply, err := parse(conn)
		must.Succeed(t, err)
		if reply.StatusCode != http.StatusOK {
			t.Errorf("the reply is %d %s, want 200", reply.StatusCode, reply.body)
		}
	}
	if n := alive.read.Load(); n != 6 {
		t.Errorf("the live replica read %d requests, want 6", n)
	}
}

// Otherwise the service could not refuse a key in a header with the wrong name, and would sell without it.
func TestAHeaderWithAnUnderscoreReachesTheReplica(t *testing.T) {
	t.Parallel()
	received := make(chan http.Header, 1)
	_, address := start(t, nginx.Main(), startReplica(t, func(_ http.ResponseWriter, r *http.Request) {
		received <- r.Header
	}).address())
	ask(t, address, "GET / HTTP/1.1\r\nHost: a\r\nIdempotency_Key: k\r\n\r\n")
	if got := (<-received)["Idempotency_key"]; len(got) != 1 || got[0] != "k" {
		t.Errorf("the replica got %q, want the key", got)
	}
}

// Some servers refuse a Host that is no host name, such as one with an underscore.
func TestReplicasGetAHostName(t *testing.T) {
	t.Parallel()
	received := make(chan string, 1)
	_, address := start(t, nginx.Main(), startReplica(t, func(_ http.ResponseWriter, r *http.Request) {
		received <- r.Host
	}).address())
	ask(t, address, "GET / HTTP/1.1\r\nHost: my_shop\r\n\r\n")
	if host := <-received; host != "stock" {
		t.Errorf("the replica got Host: %s, want the name of the upstream", host)
	}
}
