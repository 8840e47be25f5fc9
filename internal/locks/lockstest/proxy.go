package lockstest

import (
	"net"
	"sync"
	"testing"
	"time"
)

// Proxy stands between a client and its servers, and is the network that fails. It knows no protocol: a message is what one
// read from the client brings.
type Proxy struct {
	addresses []string

	mu    sync.Mutex
	links map[*link]struct{}
	cut   int           // the message to cut is the cut-th from now on; 0: none
	where Where         // to cut it
	delay time.Duration // of each message of the client
	hole  bool          // nothing passes
}

// Where a connection is cut.
type Where string

const (
	BeforeRequest Where = "before the request" // the message does not reach the server
	BeforeReply   Where = "before the reply"   // the server carries it out, and its reply does not reach the client
)

// link is one connection of a client, and the one to the server that belongs to it.
type link struct {
	client, server net.Conn
	mute           bool // the next reply is the one to cut. Guarded by Proxy.mu, as is spoilt
	spoilt         bool // messages of it have vanished in a black hole: nothing sensible can follow
}

// NewProxy makes a proxy in front of servers (host:port). It ends with the test.
func NewProxy(t testing.TB, servers ...string) *Proxy {
	t.Helper()
	p := &Proxy{links: map[*link]struct{}{}}
	for _, server := range servers {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		p.addresses = append(p.addresses, listener.Addr().String())
		var serving sync.WaitGroup
		serving.Go(func() {
			for {
				client, err := listener.Accept()
				if err != nil {
					return
				}
				serving.Go(func() { p.serve(client, server) })
			}
		})
		t.Cleanup(func() {
			listener.Close()
			p.Break()
			serving.Wait()
		})
	}
	return p
}

// Addresses are the proxy's, one for each server, in their order.
func (p *Proxy) Addresses() []string { return p.addresses }

// Cut cuts the connection that carries the k-th message from now on, counted over all connections from 1.
func (p *Proxy) Cut(k int, where Where) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut, p.where = k, where
}

// Armed says whether the message to cut has yet to come.
func (p *Proxy) Armed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cut > 0
}

// Break cuts all connections.
func (p *Proxy) Break() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.close()
	}
}

// BlackHole swallows all that is sent from now on, in both directions. The connections stay open.
func (p *Proxy) BlackHole() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hole = true
}

// Delay holds each message of the client up for d.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Pass ends every fault: messages pass again. It cuts the connections that the black hole has swallowed something of.
func (p *Proxy) Pass() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut, p.delay, p.hole = 0, 0, false
	for l := range p.links {
		l.mute = false // the message had no reply: the next one answers another
		if l.spoilt {
			l.close()
		}
	}
}

// Open is the number of open connections.
func (p *Proxy) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

func (p *Proxy) serve(client net.Conn, address string) {
	server, err := net.Dial("tcp", address)
	if err != nil {
		client.Close()
		return
	}
	l := &link{client: client, server: server}
	p.mu.Lock()
	p.links[l] = struct{}{}
	p.mu.Unlock()

	var replies sync.WaitGroup
	replies.Go(func() {
		pump(server, client, func() bool { return p.reply(l) })
		l.close()
	})
	pump(client, server, func() bool { return p.request(l) })
	l.close()
	replies.Wait()
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

// pump copies from one connection to the other, what pass lets through, until either ends.
func pump(from, to net.Conn, pass func() bool) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		if !pass() {
			continue
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// request decides about a message of the client.
func (p *Proxy) request(l *link) (pass bool) {
	p.mu.Lock()
	delay := p.delay
	p.mu.Unlock()
	time.Sleep(delay)

	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hole || l.spoilt {
		l.spoilt = true
		return false
	}
	if p.cut == 0 {
		return true
	}
	if p.cut--; p.cut > 0 {
		return true
	}
	if p.where == BeforeRequest {
		l.close()
		return false
	}
	l.mute = true
	return true
}

// reply decides about a message of the server.
func (p *Proxy) reply(l *link) (pass bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hole || l.spoilt {
		l.spoilt = true
		return false
	}
	if l.mute {
		l.close()
		return false
	}
	return true
}

func (l *link) close() {
	l.client.Close()
	l.server.Close()
}
