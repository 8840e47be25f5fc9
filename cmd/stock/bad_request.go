package main

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"net"
)

// problemListener answers with problems (RFC 9457) where Go's HTTP server answers a request that it cannot read with a
// bare text, and calls no handler.
type problemListener struct{ net.Listener }

// Accept implements net.Listener.
func (l problemListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if tcp, ok := conn.(*net.TCPConn); ok {
		return problemConn{tcp}, nil
	}
	return conn, err
}

type problemConn struct{ *net.TCPConn }

// bareHeader follows the status line of a bare text. The reply of a handler has a date before it.
var bareHeader = []byte("\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n")

// Write implements io.Writer. Go's server writes a bare text at once.
func (c problemConn) Write(reply []byte) (int, error) {
	end := bytes.IndexByte(reply, '\r') // of the status line
	if end < 0 || !bytes.HasPrefix(reply[end:], bareHeader) {
		return c.TCPConn.Write(reply)
	}
	if _, err := c.TCPConn.Write(problemOf(reply[:end], reply[end+len(bareHeader):])); err != nil {
		return 0, err
	}
	return len(reply), nil
}

// problemOf returns the reply for a status line, such as "HTTP/1.1 400 Bad Request: missing required Host header", and
// its text, which is the same without the version.
func problemOf(line, text []byte) []byte {
	status, id := line[len("HTTP/1.1 "):len("HTTP/1.1 400")], rand.Text()
	body := fmt.Sprintf(`{"type":"/problems/malformed","title":"Malformed request","status":%s,`+
		`"detail":"The request cannot be read (%s); nothing was done.","request_id":"%s"}`+"\n", status, text, id)
	return fmt.Appendf(nil, "%s\r\nContent-Type: application/problem+json\r\nX-Request-Id: %s\r\nContent-Length: %d\r\n"+
		"Connection: close\r\n\r\n%s", line, id, len(body), body)
}
