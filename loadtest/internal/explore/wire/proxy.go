package wire

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Protocol is what the connections of a Proxy speak.
type Protocol int

const (
	MySQL    Protocol = iota // also that of MariaDB and TiDB
	Redis                    // RESP2 and RESP3
	Postgres                 // protocol 3
	Frames                   // any other: everything passes, and counts as pushed
)

// session is what is known about a connection. It knows the protocol.
type session interface {
	// readRequest and readReply read what belongs together: a packet, the commands of a pipeline, a reply. They must not
	// use the state of the others, because goroutines of their own call them.
	readRequest(*bufio.Reader) (frame, error)
	readReply(*bufio.Reader) (frame, error)
	// request returns the exchange that a frame of the client begins. If it returns nil, the frame passes at once.
	request(frame) (*Exchange, error)
	// reply tells what a frame of the server is. It may change it.
	reply(frame, *Exchange) meaning
	// ready reports whether the client can send requests, because it has logged in.
	ready() bool
}

// frame is what one readRequest or readReply has read.
type frame struct {
	raw      []byte
	commands [][]string // of Redis
	value    value      // of Redis
	answer   []byte     // what the client gets in place of the server's answer; nil: the server gets the request
}

// meaning is what a frame of the server is.
type meaning int

const (
	aside   meaning = iota // none of the gate's business, such as a greeting
	pushed                 // it answers no request
	partial                // the response goes on
	final                  // the end of the response
	asks                   // the response goes on when the client has sent more
)

// refusal is the error of a request that the proxy does not understand. Its client gets the reply.
type refusal struct {
	error
	reply []byte
}

var (
	errEnded = errors.New("the connection has ended before the reply")
	errLost  = errors.New("the request was lost")
)

// Proxy holds the exchanges of all connections to a server.
type Proxy struct {
	protocol Protocol
	server   string
	gate     Gate
	redis    *redis.Client
	listener *net.TCPListener
	serving  sync.WaitGroup
	opening  atomic.Int32 // connections whose clients have not logged in yet

	mu       sync.Mutex
	links    map[*link]struct{}
	refusing bool
}

// Start starts a proxy in front of a server (host:port), on a free port of the loopback interface. asked is a client of
// a Redis that tells which keys a command has; it is only needed for the protocol of Redis.
func Start(protocol Protocol, server string, gate Gate, asked *redis.Client) (*Proxy, error) {
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	p := &Proxy{
		protocol: protocol, server: server, gate: gate, redis: asked, listener: listener, links: map[*link]struct{}{},
	}
	p.serving.Go(p.accept)
	return p, nil
}

// Addr returns the host:port at which the proxy listens.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// CutAll ends all connections, to the clients and to the server, as if the client's host had vanished. Requests that
// are held then do not reach the server.
func (p *Proxy) CutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.close()
	}
}

// Refuse makes the proxy close new connections at once, until it is called with false.
func (p *Proxy) Refuse(refuse bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusing = refuse
}

// Busy reports whether a client is about to connect and to log in, or has sent a request that the gate has not noted
// yet, or that is not answered yet. Not every message has an answer, and some requests wait, so the last is only so for
// answerTime.
func (p *Proxy) Busy() bool {
	if _, connections, _ := received(p.listener); connections > 0 || p.opening.Load() > 0 {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		if l.busy() {
			return true
		}
	}
	return false
}

// busy is Proxy.Busy for one client. What it has sent counts from its arrival at this host: the proxy may read it late.
func (l *link) busy() bool {
	if at := l.asked.Load(); at > 0 && time.Since(time.Unix(0, at)) < answerTime {
		return true
	}
	sent, _, ok := received(l.client)
	return ok && sent > l.noted.Load() && !l.left()
}

const answerTime = 100 * time.Millisecond

// Close ends the proxy and its connections. It returns when the gate is not called any more.
func (p *Proxy) Close() {
	p.listener.Close()
	p.Refuse(true)
	p.CutAll()
	p.serving.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.AcceptTCP()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // such as too many open files
			time.Sleep(10 * time.Millisecond)
			continue
		}
		p.opening.Add(1)
		p.serving.Go(func() {
			opened := sync.OnceFunc(func() { p.opening.Add(-1) })
			defer opened()
			if l := p.link(client); l != nil {
				l.run(opened)
				return
			}
			client.Close()
		})
	}
}

// link connects to the server. It returns nil if there is no connection.
func (p *Proxy) link(client *net.TCPConn) *link {
	p.mu.Lock()
	refuses := p.refusing
	p.mu.Unlock()
	if refuses {
		return nil
	}
	server, err := net.DialTimeout("tcp", p.server, 5*time.Second)
	if err != nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refusing {
		server.Close()
		return nil
	}
	l := &link{
		proxy: p, client: client, server: server, conn: &Conn{}, decided: make(chan Action),
		// A client may send more while a request is held; its hang-up must be noticed nevertheless.
		requests: make(chan frame, 1024), replies: make(chan frame, 16),
	}
	closed, end := context.WithCancel(context.Background())
	gone, hangUp := context.WithCancel(closed)
	l.closed, l.end, l.gone, l.hangUp = closed.Done(), end, gone.Done(), hangUp
	switch p.protocol {
	case MySQL:
		l.session = newMySQLSession(l.conn)
	case Redis:
		l.session = newRedisSession(l.conn, p.redis)
	case Postgres:
		l.session = newPostgresSession(l.conn)
	case Frames:
		l.session = chunks{}
	}
	p.links[l] = struct{}{}
	return l
}

// link is a client's connection and the matching one to the server. One goroutine reads from each, and run does
// the rest.
type link struct {
	proxy      *Proxy
	conn       *Conn
	session    session
	client     *net.TCPConn
	server     net.Conn
	requests   chan frame
	replies    chan frame
	requestErr error           // why requests was closed
	noted      atomic.Int64    // bytes of the requests that the gate has noted
	asked      atomic.Int64    // when the server was sent what it has not answered; 0: there is nothing
	gone       <-chan struct{} // closed by hangUp: the client has hung up, or the connection ends
	hangUp     func()
	closed     <-chan struct{} // closed by end
	end        func()

	// Of the exchange that is held or under way.
	exchange *Exchange // nil if there is none
	frame    frame
	held     bool // until the gate has decided
	decided  chan Action
	action   Action
	answer   []byte // the response so far
	asking   bool   // the server has asked for more
}

// left reports whether the client has hung up.
func (l *link) left() bool {
	select {
	case <-l.gone:
		return true
	default:
		return false
	}
}

func (l *link) close() {
	l.end()
	l.client.Close()
	l.server.Close()
}

// run serves the connection. It calls opened when the client has logged in.
func (l *link) run(opened func()) {
	var reading sync.WaitGroup
	reading.Go(func() {
		l.requestErr = l.read(l.client, l.session.readRequest, l.requests)
		l.hangUp()
		close(l.requests)
	})
	reading.Go(func() {
		_ = l.read(l.server, l.session.readReply, l.replies) // any error is the end of the connection
		close(l.replies)
	})
	for goOn := true; goOn; goOn = l.step() {
		if l.session.ready() {
			opened()
		}
	}
	if l.exchange != nil && !l.held && l.action == Pass {
		l.proxy.gate.Answered(l.exchange, errEnded)
		_, _ = l.client.Write(l.answer) // such as the error that ends the connection
		l.exchange = nil
	}
	l.close()
	reading.Wait()
	if l.exchange != nil {
		if l.held {
			<-l.decided // it comes too late
			l.action = LoseBoth
		}
		err := errEnded
		if l.action == LoseBoth {
			err = errLost
		}
		l.proxy.gate.Answered(l.exchange, err)
	}
	l.proxy.gate.Heard()
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	delete(l.proxy.links, l)
}

func (l *link) read(from net.Conn, next func(*bufio.Reader) (frame, error), to chan<- frame) error {
	r := bufio.NewReaderSize(from, 16<<10)
	for {
		f, err := next(r)
		if err != nil {
			return err
		}
		select {
		case to <- f:
		case <-l.closed:
			return net.ErrClosed
		}
	}
}

// step waits for what happens next, and deals with it. It returns false when the connection has to end.
func (l *link) step() (goOn bool) {
	requests, gone := l.requests, l.gone
	if l.exchange != nil && !l.asking {
		requests = nil
	}
	if l.exchange == nil || l.held || !l.exchange.Blocks {
		gone = nil
	}
	select {
	case <-l.closed:
		return false
	case f, ok := <-requests:
		if !ok {
			return l.refuse(l.requestErr)
		}
		return l.request(f)
	case l.action = <-l.decided:
		if !l.exchange.Blocks {
			l.asked.Store(time.Now().UnixNano())
		}
		l.exchange.Noted()
		l.held = false
		return l.action != LoseBoth && l.send(l.frame)
	case f, ok := <-l.replies:
		return ok && l.reply(f)
	case <-gone:
		return false
	}
}

// request lets the gate decide about a frame of the client, if it begins an exchange.
func (l *link) request(f frame) (goOn bool) {
	if f.answer != nil || l.asking {
		l.noted.Add(int64(len(f.raw)))
		return l.passOn(f)
	}
	e, err := l.session.request(f)
	if err != nil {
		return l.refuse(err)
	}
	noted := sync.OnceFunc(func() { l.noted.Add(int64(len(f.raw))) })
	if e == nil {
		defer noted()
		if l.proxy.protocol == Frames {
			l.asked.Store(time.Now().UnixNano())
			l.proxy.gate.Heard()
		}
		return l.send(f)
	}
	e.Conn, e.Store, e.noted = l.conn, l.conn.Store, noted
	l.exchange, l.frame, l.held = e, f, true
	go func() { l.decided <- l.proxy.gate.Arrive(e, l.gone) }() // run receives it in any case
	return true
}

// passOn passes on what begins no exchange: what the server has asked for, or what it is not to get.
func (l *link) passOn(f frame) (goOn bool) {
	if f.answer != nil {
		_, err := l.client.Write(f.answer)
		return err == nil
	}
	l.asked.Store(time.Now().UnixNano())
	return l.send(f)
}

// reply passes on a frame of the server. A response is passed on when it is complete.
func (l *link) reply(f frame) (goOn bool) {
	e := l.exchange
	if l.held {
		e = nil
	}
	switch l.session.reply(f, e) {
	case pushed:
		l.asked.Store(0)
		l.proxy.gate.Heard()
		if len(l.answer) > 0 { // it keeps its place
			l.answer = append(l.answer, f.raw...)
			return true
		}
	case partial:
		l.answer = append(l.answer, f.raw...)
		return true
	case asks:
		f.raw = slices.Concat(l.answer, f.raw)
		l.answer, l.asking = nil, true
	case final:
		answer := slices.Concat(l.answer, f.raw)
		l.exchange, l.frame, l.answer, l.asking = nil, frame{}, nil, false
		l.proxy.gate.Answered(e, nil)
		if l.action == LoseReply {
			return false
		}
		_, err := l.client.Write(answer)
		l.asked.Store(0)
		return err == nil
	case aside:
	}
	_, err := l.client.Write(f.raw)
	return err == nil
}

// refuse tells a client that its request is not understood.
func (l *link) refuse(err error) (goOn bool) {
	if r, ok := errors.AsType[refusal](err); ok {
		_, _ = l.client.Write(r.reply)
	}
	return false
}

func (l *link) send(f frame) (goOn bool) {
	_, err := l.server.Write(f.raw)
	return err == nil
}

// chunks is the session of a protocol that nobody reads.
type chunks struct{}

func (chunks) readRequest(r *bufio.Reader) (frame, error) { return readChunk(r) }
func (chunks) readReply(r *bufio.Reader) (frame, error)   { return readChunk(r) }
func (chunks) request(frame) (*Exchange, error)           { return nil, nil }
func (chunks) reply(frame, *Exchange) meaning             { return pushed }
func (chunks) ready() bool                                { return true }

func readChunk(r *bufio.Reader) (frame, error) {
	if _, err := r.Peek(1); err != nil {
		return frame{}, err
	}
	raw := make([]byte, r.Buffered())
	_, err := io.ReadFull(r, raw)
	return frame{raw: raw}, err
}

// readN appends n bytes to buf. Memory is taken as they arrive, whatever n is.
func readN(r *bufio.Reader, buf []byte, n int) ([]byte, error) {
	b := bytes.NewBuffer(buf)
	_, err := io.CopyN(b, r, int64(n))
	return b.Bytes(), err
}
