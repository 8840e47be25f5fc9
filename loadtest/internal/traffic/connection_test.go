package traffic

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"stock/loadtest/internal/history"
)

// mustSell runs a load of so many requests, and fails the test unless each was sold.
func mustSell(t *testing.T, driver *Driver, requests int) {
	t.Helper()
	result := send(t, driver, Load{Users: 1, Requests: requests})
	for _, op := range result.Ops {
		if op.Outcome != history.Sold {
			t.Errorf("outcome %s: %s", op.Outcome, op.Error)
		}
	}
}

// counting starts a server that counts its connections.
func counting(t *testing.T, handler http.HandlerFunc) (server *httptest.Server, opened *atomic.Int64) {
	t.Helper()
	opened = &atomic.Int64{}
	server = httptest.NewUnstartedServer(handler)
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	t.Cleanup(server.Close)
	return server, opened
}

func TestAConnectionIsKeptFromLoadToLoad(t *testing.T) {
	t.Parallel()
	server, opened := counting(t, sell)
	server.Start()
	driver := drive(t, server.URL, 1)
	for range 3 {
		mustSell(t, driver, 5)
		time.Sleep(checkedAfter) // from now on, the driver checks whether the server has closed it
	}
	if opened.Load() != 1 {
		t.Errorf("%d connections were opened, want 1", opened.Load())
	}
}

func TestAConnectionThatTheServerClosedIsReplacedBeforeTheNextRequest(t *testing.T) {
	t.Parallel()
	server, opened := counting(t, sell)
	server.Start()
	driver := drive(t, server.URL, 1)
	mustSell(t, driver, 1)
	server.CloseClientConnections()
	time.Sleep(checkedAfter)
	mustSell(t, driver, 1)
	if opened.Load() != 2 {
		t.Errorf("%d connections were opened, want 2", opened.Load())
	}
}

func TestAServerWithTLSIsDriven(t *testing.T) {
	t.Parallel()
	server, opened := counting(t, sell)
	server.StartTLS()
	driver := drive(t, server.URL, 1)
	// The certificate of the test server is unknown to this host.
	if op := answerOf(t, driver); op.Outcome != history.Unknown || !strings.Contains(op.Error, "certificate") {
		t.Errorf("outcome %s, error %q, want the certificate to be refused", op.Outcome, op.Error)
	}

	transport, ok := server.Client().Transport.(*http.Transport)
	if !ok {
		t.Fatal("the test server's client has another transport")
	}
	driver.servers[0].roots = transport.TLSClientConfig.RootCAs
	driver = &Driver{servers: driver.servers}
	t.Cleanup(driver.Close)
	mustSell(t, driver, 3)
	time.Sleep(checkedAfter)
	before := opened.Load()
	mustSell(t, driver, 3)
	if opened.Load() != before {
		t.Error("a connection with TLS is not kept")
	}
}

// An answer that nobody asked for must not become that of the next request.
func TestWhatFollowsAReplyIsDropped(t *testing.T) {
	t.Parallel()
	const sold = `{"goods_id":1,"count":1,"remaining":7}`
	reply := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(sold), sold)
	unasked := "HTTP/1.1 409 Conflict\r\nContent-Length: 2\r\n\r\n{}"
	url := accept(t, func(conn net.Conn) {
		request := make([]byte, 4096)
		if _, err := conn.Read(request); err == nil {
			_, _ = io.WriteString(conn, reply+unasked) // the client then closes the connection
			_, _ = conn.Read(request)
		}
	})
	mustSell(t, drive(t, url, 1), 3)
}
