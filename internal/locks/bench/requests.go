package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
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

// requests counts the commands that clients send to Redis.
//
// It observes the connections, because the server cannot tell: INFO also counts the calls made by scripts, even in
// total_commands_processed.
type requests struct{ commands atomic.Int64 }

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
}

func (c *countingConn) Write(p []byte) (int, error) {
	c.count.commands.Add(commandsIn(p))
	return c.TCPConn.Write(p)
}

// commandsIn counts the commands of a write, except those of setUp. A command is an array ("*2\r\n") of strings
// ("$3\r\nGET\r\n"), the first of which is its name. A write has whole commands, because they are smaller than the
// clients' buffers.
func commandsIn(p []byte) (count int64) {
	isName := false
	for len(p) > 0 {
		line, rest, _ := bytes.Cut(p, []byte("\r\n"))
		p = rest
		if bytes.HasPrefix(line, []byte("*")) {
			isName = true
			continue
		}
		length, err := strconv.Atoi(strings.TrimPrefix(string(line), "$"))
		if err != nil || length < 0 {
			panic(fmt.Sprintf("the line %q of a command of Redis is not the length of a string", line))
		}
		if isName && !setUp[strings.ToLower(string(p[:min(length, len(p))]))] {
			count++
		}
		isName = false
		p = p[min(length+len("\r\n"), len(p)):]
	}
	return count
}
