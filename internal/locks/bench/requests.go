package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
)

// setUp are the commands that open, close and monitor connections. They are not counted as part of locking.
var setUp = map[string]bool{
	"auth": true, "client": true, "command": true, "config": true, "hello": true, "info": true, "ping": true,
	"quit": true, "select": true, "subscribe": true, "unsubscribe": true,
}

// requests counts what a process sends to Redis.
//
// It observes the connections, because the server cannot tell: INFO also counts the calls made by scripts, even in
// total_commands_processed.
type requests struct {
	commands atomic.Int64
	trips    atomic.Int64 // writes with at least one command: commands sent together share a round trip
}

func (r *requests) dial(ctx context.Context, dialer *net.Dialer, addr string) (net.Conn, error) {
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &countingConn{TCPConn: conn.(*net.TCPConn), count: r}, nil
}

func (r *requests) dialRueidis(ctx context.Context, addr string, dialer *net.Dialer, _ *tls.Config) (net.Conn, error) {
	return r.dial(ctx, dialer, addr)
}

// countingConn counts the commands that are written to it.
type countingConn struct {
	*net.TCPConn
	count *requests
	scan  scanner
}

func (c *countingConn) Write(p []byte) (int, error) {
	if commands := c.scan.commands(p); commands > 0 {
		c.count.commands.Add(int64(commands))
		c.count.trips.Add(1)
	}
	return c.TCPConn.Write(p)
}

// scanner finds commands in a stream of requests. A request is an array ("*2\r\n") of strings ("$3\r\nGET\r\n"), the
// first of which names the command. The stream may be cut anywhere.
type scanner struct {
	piece []byte // the start of a line or a name that continues in the next call
	rest  int    // remaining bytes of a string, including its line end
	first bool   // this string, or the next one, is a command name
}

// commands counts the command names that end in the next part of the stream, except those of setUp.
func (s *scanner) commands(p []byte) (count int) {
	for len(p) > 0 {
		if s.rest > 0 {
			n := min(s.rest, len(p))
			count += s.readString(p[:n])
			p = p[n:]
			continue
		}
		end := bytes.IndexByte(p, '\n')
		if end < 0 {
			s.piece = append(s.piece, p...)
			break
		}
		line := bytes.TrimSpace(append(s.piece, p[:end]...))
		s.piece, p = s.piece[:0], p[end+1:]
		switch {
		case len(line) == 0:
		case line[0] == '*':
			s.first = true
		case line[0] == '$':
			length, _ := strconv.Atoi(string(line[1:]))
			s.rest = length + len("\r\n")
		}
	}
	return count
}

// readString reads a part of a string. It returns 1 if this completes a command name that is not in setUp.
func (s *scanner) readString(part []byte) (count int) {
	s.rest -= len(part)
	if !s.first {
		return 0
	}
	s.piece = append(s.piece, part...)
	if s.rest > 0 {
		return 0
	}
	if !setUp[strings.ToLower(string(bytes.TrimSpace(s.piece)))] {
		count = 1
	}
	s.first, s.piece = false, s.piece[:0]
	return count
}
