package traffic

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/valyala/fasthttp"
	"golang.org/x/sys/unix"

	"stock/internal/monotonic"
	"stock/loadtest/internal/history"
)

const (
	maxReply    = 64 << 10 // bytes of a reply's body
	maxHeader   = 4 << 10  // bytes of a reply's header
	dialTimeout = 5 * time.Second

	// checkedAfter is how long a connection must have been idle to be checked before it is used. In a closed loop it is
	// not idle between requests, and the check costs a system call. A request on a connection that the server closes
	// sooner than that has an unknown outcome.
	checkedAfter = 10 * time.Millisecond
	// maxIdle is shorter than the idle timeouts of nginx and the replicas, so that they do not close while a request is
	// on its way.
	maxIdle = 30 * time.Second
)

// server is where a connection leads.
type server struct {
	address string // host:port
	host    string // as the Host header has it
	path    string // in front of every path
	tls     bool
	roots   *x509.CertPool // whose certificates to trust; nil: those of this host
}

// newServer parses the URL of a server.
func newServer(base string) (server, error) {
	parsed, err := url.Parse(base)
	if err != nil {
		return server{}, fmt.Errorf("target %q: %w", base, err)
	}
	if parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.Hostname() == "" {
		return server{}, fmt.Errorf("target %q: must be a URL such as http://127.0.0.1:8000", base)
	}
	port := parsed.Port()
	if port == "" {
		port = parsed.Scheme // net.Dial knows it by name
	}
	return server{
		address: net.JoinHostPort(parsed.Hostname(), port),
		host:    parsed.Host,
		tls:     parsed.Scheme == "https",
		path:    strings.TrimSuffix(parsed.EscapedPath(), "/"),
	}, nil
}

func (s server) dial(ctx context.Context) (net.Conn, error) {
	dialer := &net.Dialer{Timeout: dialTimeout}
	if s.tls {
		secured := &tls.Dialer{NetDialer: dialer, Config: &tls.Config{RootCAs: s.roots, MinVersion: tls.VersionTLS12}}
		return secured.DialContext(ctx, "tcp", s.address)
	}
	return dialer.DialContext(ctx, "tcp", s.address)
}

// connection is one client's connection to a server. It sends one request at a time, and never sends one twice. It is
// opened when it is needed, and again after it broke.
type connection struct {
	server  server
	reader  *bufio.Reader
	reply   fasthttp.Response
	usedNS  int64 // when it was last used
	readErr error // why the last read failed: fasthttp reports every failure of the first read as io.EOF

	mu   sync.Mutex // guards conn, because another goroutine may call cut
	conn net.Conn   // nil: not open
}

func newConnection(s server) *connection {
	c := &connection{server: s}
	c.reader = bufio.NewReaderSize(c, maxHeader)
	return c
}

// Read reads from the connection for c.reader.
func (c *connection) Read(p []byte) (n int, err error) {
	n, c.readErr = c.conn.Read(p)
	return n, c.readErr
}

// exchange sends a request and reads the whole reply into c.reply. It records the times and the status. If there is no
// whole reply, it records how the request failed and returns false.
func (c *connection) exchange(ctx context.Context, request []byte, timeout time.Duration, op *history.Op) bool {
	deadline := time.Now().Add(timeout)
	op.SentNS = monotonic.Now()
	if err := c.open(ctx, deadline); err != nil {
		op.ReceivedNS = monotonic.Now()
		op.Outcome, op.Error = history.Unknown, "not sent: "+describe(ctx, err)
		return false
	}
	op.SentNS = monotonic.Now() // without the time of connecting
	err := c.send(ctx, request, deadline)
	op.ReceivedNS = monotonic.Now()
	c.usedNS = op.ReceivedNS
	if err != nil {
		c.close()
		op.Outcome, op.Error = history.Unknown, describe(ctx, err)
		return false
	}
	if c.reply.ConnectionClose() || c.reader.Buffered() > 0 { // what follows a reply answers no request
		c.close()
	}
	op.Status = c.reply.StatusCode()
	return true
}

func (c *connection) send(ctx context.Context, request []byte, deadline time.Time) error {
	if err := c.conn.SetDeadline(deadline); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil { // cut may have come before the deadline was set
		return err
	}
	if _, err := c.conn.Write(request); err != nil {
		return err
	}
	c.readErr = nil
	err := c.reply.ReadLimitBody(c.reader, maxReply)
	if c.readErr != nil && !errors.Is(c.readErr, io.EOF) {
		return c.readErr
	}
	return err
}

// open opens the connection, unless it is open and the server has not closed it.
func (c *connection) open(ctx context.Context, deadline time.Time) error {
	if c.conn != nil {
		if idle := time.Duration(monotonic.Now() - c.usedNS); idle < checkedAfter || idle < maxIdle && c.alive() {
			return nil
		}
		c.close()
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	conn, err := c.server.dial(ctx)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.conn = conn
	c.mu.Unlock()
	c.reader.Reset(c)
	c.usedNS = monotonic.Now()
	return nil
}

// alive reports whether the server has neither closed the connection nor sent anything since its last reply.
func (c *connection) alive() bool {
	conn := c.conn
	if secured, ok := conn.(*tls.Conn); ok {
		conn = secured.NetConn()
	}
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return false
	}
	quiet := false
	err = raw.Control(func(fd uintptr) {
		var next [1]byte
		_, _, err := unix.Recvfrom(int(fd), next[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		quiet = errors.Is(err, unix.EAGAIN)
	})
	return err == nil && quiet
}

// cut makes a request in flight fail at once. Another goroutine may call it at any time.
func (c *connection) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil {
		_ = c.conn.SetDeadline(time.Unix(1, 0)) // fails only if the connection is closed already
	}
}

func (c *connection) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}

// TimedOut is the error of a request whose client gave up waiting: the service may still be working on it.
const TimedOut = "timeout"

// describe returns a short text for the error of a connection, because a history may hold thousands of them.
func describe(ctx context.Context, err error) string {
	switch {
	case ctx.Err() != nil:
		return "cancelled"
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return TimedOut
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "connection closed before the reply was complete"
	}
	return err.Error()
}
