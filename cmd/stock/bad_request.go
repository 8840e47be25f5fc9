package main

import (
	"bytes"
	"net"
	"strconv"
)

// refuseFunc returns the whole reply to a request that net/http refuses.
type refuseFunc func(status int, reason string) []byte

// problemListener answers with problems (RFC 9457) where Go's HTTP server answers a request that it cannot read with a
// bare text, and calls no handler.
type problemListener struct {
	net.Listener
	refuse refuseFunc
}

// Accept implements net.Listener.
func (l problemListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if tcp, ok := conn.(*net.TCPConn); ok {
		return problemConn{tcp, l.refuse}, nil
	}
	return conn, err
}

type problemConn struct {
	*net.TCPConn
	refuse refuseFunc
}

// bareHeader follows the status line of a bare text. The reply of a handler also has an X-Request-Id.
var bareHeader = []byte("\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n")

// Write implements io.Writer. Go's server writes a bare text at once, after a status line such as "HTTP/1.1 400 Bad
// Request: missing required Host header".
func (c problemConn) Write(reply []byte) (int, error) {
	end := bytes.IndexByte(reply, '\r') // of the status line
	if end < 0 || !bytes.HasPrefix(reply[end:], bareHeader) {
		return c.TCPConn.Write(reply)
	}
	code, reason, _ := bytes.Cut(bytes.TrimPrefix(reply[:end], []byte("HTTP/1.1 ")), []byte(" "))
	status, err := strconv.Atoi(string(code))
	if err != nil {
		return c.TCPConn.Write(reply)
	}
	if _, err := c.TCPConn.Write(c.refuse(status, string(reason))); err != nil {
		return 0, err
	}
	return len(reply), nil
}
