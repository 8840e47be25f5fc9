package locks

import (
	"net"
	"time"

	"github.com/go-zookeeper/zk"
)

// LimitZooKeeperHandshake returns a dialer for zk.WithDialer whose connections fail if the server does not answer the
// first message within limit, so that the client connects again. A server that is starting may accept a connection and
// never answer it. The client itself would wait for more than six times the session timeout, and fail all requests
// meanwhile.
func LimitZooKeeperHandshake(dial zk.Dialer, limit time.Duration) zk.Dialer {
	return func(network, address string, timeout time.Duration) (net.Conn, error) {
		conn, err := dial(network, address, timeout)
		if err != nil {
			return nil, err
		}
		return &newConn{Conn: conn, limit: limit}, nil
	}
}

// newConn is a connection on which nothing has been read.
type newConn struct {
	net.Conn
	limit time.Duration // for the first read; 0 after that
}

// SetReadDeadline implements net.Conn. The client calls it before each read.
func (c *newConn) SetReadDeadline(t time.Time) error {
	if first := time.Now().Add(c.limit); c.limit > 0 && t.After(first) {
		t = first
	}
	c.limit = 0
	return c.Conn.SetReadDeadline(t)
}
