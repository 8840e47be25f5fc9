// Package tcpproxy provides a TCP proxy that simulates network failures, for tests and for the lab.
//
// It knows no protocol: a message is whatever one read returns, up to 64 KiB. If a client waits for the reply before it
// sends more, that is one request. Cut, Hold and Delay act on the messages of clients; Select restricts Cut and Hold to
// some of them. Catch holds one message, and CatchReply the reply to one; either may cut the connection. BlackHole,
// Break and Redirect act on all connections, in both directions.
package tcpproxy

import (
	"bytes"
	"net"
	"slices"
	"sync"
	"time"
)

// Proxy forwards connections to one or more servers, and makes them fail when told to. Its methods may be called at any
// time, also while connections are open.
type Proxy struct {
	addresses []string
	listeners []net.Listener
	serving   sync.WaitGroup

	mu       sync.Mutex
	servers  []string // where the connections of each listener lead
	links    map[*link]struct{}
	accepted int                // connections so far
	selected func(Message) bool // nil selects every message
	count    int                // selected messages so far
	cut      int                // cut the cut-th selected message from now on; 0: none
	cutPoint CutPoint           // to cut it
	held     chan struct{}      // closed to let held messages pass; nil while none are held
	catches  []*Caught          // that wait for their message
	delay    time.Duration      // of each message of a client
	hole     bool               // nothing passes
	closed   bool
}

// Message is what one read from a client returned.
type Message struct {
	Conn int    // the number of its connection, from 1
	Data []byte // valid only during the call that receives it
}

// CutPoint is the point at which a connection is cut.
type CutPoint string

const (
	BeforeRequest CutPoint = "before the request" // the message does not reach the server
	BeforeReply   CutPoint = "before the reply"   // the server carries it out; its reply does not reach the client
)

// link is a client's connection and the matching one to the server.
type link struct {
	number         int
	client, server net.Conn
	closeOnce      sync.Once
	closed         chan struct{}

	// Guarded by Proxy.mu.
	mute   bool    // cut the connection at the next reply
	ending bool    // that reply has come
	caught *Caught // that the next reply answers; nil if there is none
	spoilt bool    // a black hole swallowed some of its messages: nothing sensible can follow
}

// Test is the part of testing.TB that New needs: the lab does not link the package testing.
type Test interface {
	Helper()
	Fatal(args ...any)
	Cleanup(func())
}

// New starts a proxy in front of servers (host:port). It ends with the test.
func New(t Test, servers ...string) *Proxy {
	t.Helper()
	p, err := Start(servers...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// Start starts a proxy in front of servers (host:port).
func Start(servers ...string) (*Proxy, error) {
	p := &Proxy{servers: slices.Clone(servers), links: map[*link]struct{}{}}
	for i := range servers {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			p.Close()
			return nil, err
		}
		p.listeners = append(p.listeners, listener)
		p.addresses = append(p.addresses, listener.Addr().String())
		p.serving.Go(func() { p.accept(listener, i) })
	}
	return p, nil
}

func (p *Proxy) accept(l net.Listener, listener int) {
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		p.serving.Go(func() { p.serve(client, listener) })
	}
}

// Close ends the proxy, cuts its connections, and drops what it holds back.
func (p *Proxy) Close() {
	for _, listener := range p.listeners {
		listener.Close()
	}
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.Break()
	p.serving.Wait()
}

// Addr returns the address of a proxy with one server.
func (p *Proxy) Addr() string { return p.addresses[0] }

// Addresses returns the proxy's addresses: one for each server, in the order given to New.
func (p *Proxy) Addresses() []string { return p.addresses }

// Open returns the number of open connections.
func (p *Proxy) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// Select restricts Cut, Hold and Count to the messages for which match reports true. At first they concern every
// message. match is called once for each message, for one message at a time, and must not call the Proxy.
func (p *Proxy) Select(match func(Message) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.selected = match
}

// Count returns how many selected messages have arrived so far, including those that were cut or are held.
func (p *Proxy) Count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count
}

// Cut cuts the connection of the k-th selected message from now on, counted over all connections from 1.
func (p *Proxy) Cut(k int, at CutPoint) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut, p.cutPoint = k, at
}

// Armed reports whether the message to cut has yet to arrive.
func (p *Proxy) Armed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cut > 0
}

// Hold holds back the selected messages that arrive from now on, until release is called. Whether such a message is cut
// is decided when it arrives: a later Cut concerns the messages that arrive after it.
func (p *Proxy) Hold() (release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	held := make(chan struct{})
	p.held = held
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.held == held {
			p.held = nil
		}
		close(held)
	})
}

// Caught is a message that Catch or CatchReply waits for, and then holds it or its reply.
type Caught struct {
	proxy    *Proxy
	match    func(Message) bool
	reply    bool // the reply is held, and not the message
	arrived  chan struct{}
	released chan struct{} // closed while proxy.mu is held
	answered chan struct{}
	answer   sync.Once

	// Set before arrived is closed.
	data []byte
	link *link

	dropped bool // guarded by Proxy.mu: it does not reach the server
}

// Catch holds back the next message for which match reports true, and all that follow on its connection, until it is
// released. The message then reaches the server even if its client has closed the connection meanwhile. match is called
// as that of Select.
func (p *Proxy) Catch(match func(Message) bool) *Caught { return p.catch(match, false) }

// CatchReply is Catch for the reply: the message passes, and what the server answers is held back until it is released.
// It is dropped if the client closes the connection meanwhile.
func (p *Proxy) CatchReply(match func(Message) bool) *Caught { return p.catch(match, true) }

func (p *Proxy) catch(match func(Message) bool, reply bool) *Caught {
	c := &Caught{
		proxy:    p,
		match:    match,
		reply:    reply,
		arrived:  make(chan struct{}),
		released: make(chan struct{}),
		answered: make(chan struct{}),
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.catches = append(p.catches, c)
	return c
}

// Arrived is closed when the message, or its reply, has arrived and is held.
func (c *Caught) Arrived() <-chan struct{} { return c.arrived }

// Data returns the message, also if its reply is held. It must not be called before Arrived is closed.
func (c *Caught) Data() []byte { return c.data }

// Bytes returns the length of the message. It must not be called before Arrived is closed.
func (c *Caught) Bytes() int { return len(c.data) }

// Answered is closed when the answer of the server passes after the release, or the connection has ended.
func (c *Caught) Answered() <-chan struct{} { return c.answered }

// Release lets the message pass. If it has not arrived, it passes when it does. Release does nothing if the message was
// released or cut before.
func (c *Caught) Release() {
	c.proxy.mu.Lock()
	defer c.proxy.mu.Unlock()
	c.decide()
}

// Cut cuts the connection of the message: at BeforeRequest instead of passing it on, at BeforeReply once the server has
// answered. A held reply is dropped in either case. Cut does nothing if the message was released or cut before. It must
// not be called before Arrived is closed.
func (c *Caught) Cut(at CutPoint) {
	c.proxy.mu.Lock()
	defer c.proxy.mu.Unlock()
	switch {
	case !c.decide():
	case at == BeforeRequest && !c.reply:
		c.dropped = true
	default:
		c.link.mute = true
	}
}

// decide ends the hold, and reports whether it is the first to do so. proxy.mu is held.
func (c *Caught) decide() (first bool) {
	select {
	case <-c.released:
		return false
	default:
	}
	c.proxy.catches = slices.DeleteFunc(c.proxy.catches, func(other *Caught) bool { return other == c })
	close(c.released)
	return true
}

func (c *Caught) settle() { c.answer.Do(func() { close(c.answered) }) }

// caught returns the Caught that a message is held for, or nil. Each match sees each message: it may depend on the
// messages before.
func (p *Proxy) caught(l *link, m Message) (found *Caught) {
	for _, c := range p.catches {
		if c.match(m) && found == nil {
			found = c
		}
	}
	if found == nil {
		return nil
	}
	p.catches = slices.DeleteFunc(p.catches, func(c *Caught) bool { return c == found })
	found.data, found.link = bytes.Clone(m.Data), l
	if !found.reply {
		close(found.arrived)
	}
	return found
}

// Delay delays each message of a client by d. Messages of a connection are delayed one after the other. Cutting the
// connection does not shorten a delay that has begun, and Close waits for it.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// BlackHole swallows everything that is sent from now on, in both directions. The connections stay open.
func (p *Proxy) BlackHole() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hole = true
}

// Break cuts all connections.
func (p *Proxy) Break() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.close()
	}
}

// Redirect leads the connections of a proxy with one server to another server (host:port) from now on. It cuts those
// that are open. It panics if the proxy has several servers.
func (p *Proxy) Redirect(server string) {
	p.mu.Lock()
	if len(p.servers) != 1 {
		p.mu.Unlock()
		panic("tcpproxy: Redirect of a proxy with several servers")
	}
	p.servers[0] = server
	p.mu.Unlock()
	p.Break()
}

// Pass ends Cut, Delay and BlackHole: messages pass again. It cuts the connections of which a black hole has swallowed
// messages. Messages that Hold holds back stay there until they are released.
func (p *Proxy) Pass() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut, p.delay, p.hole = 0, 0, false
	for l := range p.links {
		l.mute = false // the message had no reply: the next one answers another message
		if l.spoilt {
			l.close()
		}
	}
}

// serve serves a connection to the listener of this number.
func (p *Proxy) serve(client net.Conn, listener int) {
	p.mu.Lock()
	address := p.servers[listener]
	p.mu.Unlock()
	server, err := net.Dial("tcp", address)
	if err != nil {
		client.Close()
		return
	}
	l := p.open(client, server)
	p.mu.Lock()
	if p.servers[listener] != address { // redirected meanwhile
		l.close()
	}
	p.mu.Unlock()
	var replies sync.WaitGroup
	replies.Go(func() {
		pump(server, client, func([]byte) bool { return p.reply(l) })
		l.close()
	})
	pump(client, server, func(data []byte) bool { return p.request(l, data) })
	p.awaitAnswer(l)
	l.close()
	replies.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
	if l.caught != nil {
		l.caught.settle()
	}
}

// awaitAnswer keeps the connection to the server open until the server has answered a caught message. Its client may
// have gone, and if the server saw that at once, it might drop the message.
func (p *Proxy) awaitAnswer(l *link) {
	p.mu.Lock()
	caught := l.caught
	p.mu.Unlock()
	if caught == nil || caught.reply {
		return
	}
	select {
	case <-caught.answered:
	case <-l.closed:
	}
}

func (p *Proxy) open(client, server net.Conn) *link {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.accepted++
	l := &link{number: p.accepted, client: client, server: server, closed: make(chan struct{})}
	p.links[l] = struct{}{}
	if p.closed {
		l.close()
	}
	return l
}

// pump copies the messages that pass lets through from one connection to the other, until either ends.
func pump(from, to net.Conn, pass func([]byte) bool) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		if !pass(buffer[:n]) {
			continue
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// request decides about a message of the client.
func (p *Proxy) request(l *link, data []byte) (pass bool) {
	p.mu.Lock()
	delay := p.delay
	p.mu.Unlock()
	time.Sleep(delay)

	p.mu.Lock()
	defer p.mu.Unlock()
	if p.swallow(l) {
		return false
	}
	if c := p.caught(l, Message{Conn: l.number, Data: data}); c != nil {
		pass := c.reply || p.wait(l, c.released)
		if c.dropped {
			l.close()
		}
		if !pass || c.dropped {
			c.settle()
			return false
		}
		l.caught = c
	}
	if p.selected != nil && !p.selected(Message{Conn: l.number, Data: data}) {
		return true
	}
	p.count++
	cut := p.cut == 1
	if p.cut > 0 {
		p.cut--
	}
	if cut && p.cutPoint == BeforeRequest {
		l.close()
		return false
	}
	if held := p.held; held != nil && !p.wait(l, held) {
		return false
	}
	if cut {
		l.mute = true
	}
	return true
}

// wait holds a message until it is released or its connection is closed, and reports whether it may pass. p.mu is held
// before and after.
func (p *Proxy) wait(l *link, released <-chan struct{}) (pass bool) {
	p.mu.Unlock()
	select {
	case <-released:
	case <-l.closed:
	}
	p.mu.Lock()
	return !p.swallow(l)
}

// reply decides about a message of the server.
func (p *Proxy) reply(l *link) (pass bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.swallow(l) {
		return false
	}
	if c := l.caught; c != nil && c.reply && !l.ending {
		close(c.arrived)
		if !p.wait(l, c.released) {
			return false
		}
	}
	if l.mute && !l.ending {
		// The message may be several commands, which each have a reply. The server carries out all of them, finds that no
		// more come, and closes the connection. If it were closed before, the server might stop at the next command.
		l.ending = true
		_ = l.server.(*net.TCPConn).CloseWrite()
	}
	if l.ending {
		return false
	}
	if l.caught != nil {
		l.caught.settle()
		l.caught = nil
	}
	return true
}

// swallow drops a message of a connection, and all that follow, if the proxy is a black hole. It returns whether it
// did.
func (p *Proxy) swallow(l *link) (dropped bool) {
	if p.hole {
		l.spoilt = true
	}
	return l.spoilt
}

func (l *link) close() {
	l.closeOnce.Do(func() {
		l.client.Close()
		l.server.Close()
		close(l.closed) // last: what is held must not pass any more
	})
}
