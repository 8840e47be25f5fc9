package catalogue_test

import (
	"bytes"
	"net"
	"regexp"
	"sync"
	"testing"
)

// proxy stands between a replica and a server, and can cut a connection right before or right after a write.
type proxy struct {
	listener net.Listener
	server   string
	write    *regexp.Regexp // finds a write in what a client sends

	mu   sync.Mutex
	cut  cut
	seen int           // writes
	held chan struct{} // closed to let the writes pass; nil where none is stopped
}

type cut int

const (
	never       cut = iota
	beforeSent      // the write does not reach the server
	beforeReply     // the server carries it out, and its reply does not reach the client
)

func newProxy(t testing.TB, server string, write *regexp.Regexp) *proxy {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: listener, server: server, write: write}
	var connections sync.WaitGroup
	t.Cleanup(func() {
		listener.Close()
		connections.Wait()
	})
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			connections.Go(func() { p.serve(client) })
		}
	}()
	return p
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

// arm makes the next write on any connection the last one of that connection.
func (p *proxy) arm(c cut) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = c
}

// hold stops the writes that come from now on, uncut and not yet sent on, until they are released.
func (p *proxy) hold() (release func()) {
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

// look makes other statements the writes.
func (p *proxy) look(write *regexp.Regexp) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.write = write
}

// writes counts the writes that have come, stopped ones too.
func (p *proxy) writes() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen
}

// pass counts a write, and waits while writes are stopped.
func (p *proxy) pass(sent []byte) {
	p.mu.Lock()
	held := p.held
	if p.write.Match(sent) {
		p.seen++
	} else {
		held = nil
	}
	p.mu.Unlock()
	if held != nil {
		<-held
	}
}

// trip says whether this is the write to cut, and disarms.
func (p *proxy) trip(sent []byte) cut {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut == never || !p.write.Match(sent) {
		return never
	}
	defer func() { p.cut = never }()
	return p.cut
}

func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		return
	}
	defer server.Close()

	var mu sync.Mutex // orders a reply behind the decision to swallow it
	swallow := false
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer client.Close()
		buffer := make([]byte, 64<<10)
		for {
			n, err := server.Read(buffer)
			mu.Lock()
			swallowed := swallow && n > 0
			mu.Unlock()
			if err != nil || swallowed {
				return // the client sees the connection end, after the server has replied
			}
			if _, err := client.Write(buffer[:n]); err != nil {
				return
			}
		}
	}()
	buffer := make([]byte, 64<<10)
	inTransaction := false
	for {
		n, err := client.Read(buffer)
		if err != nil {
			break
		}
		sent := buffer[:n]
		begins, ends := bytes.Contains(sent, []byte("START TRANSACTION")), endOfTransaction.Match(sent)
		inTransaction = (inTransaction || begins) && !ends
		tripped := never
		if !inTransaction { // what is inside a transaction takes effect with its COMMIT
			tripped = p.trip(sent)
		}
		if tripped == beforeSent {
			break
		}
		p.pass(sent)
		if tripped == beforeReply {
			mu.Lock()
			swallow = true
			mu.Unlock()
		}
		if _, err := server.Write(sent); err != nil {
			break
		}
		if tripped == beforeReply {
			<-done
			return
		}
	}
	client.Close()
	server.Close()
	<-done
}

var endOfTransaction = regexp.MustCompile(`(COMMIT|ROLLBACK)$`)
