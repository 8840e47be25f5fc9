package lockstest_test

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"stock/internal/locks/lockstest"
)

// echo answers each message with itself, and tells what it heard.
func echo(t *testing.T) (address string, heard <-chan string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	messages := make(chan string, 16)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				buffer := make([]byte, 64)
				for {
					n, err := conn.Read(buffer)
					if err != nil {
						return
					}
					messages <- string(buffer[:n])
					if _, err := conn.Write(buffer[:n]); err != nil {
						return
					}
				}
			}()
		}
	}()
	return listener.Addr().String(), messages
}

func dial(t *testing.T, p *lockstest.Proxy) net.Conn {
	conn, err := net.Dial("tcp", p.Addresses()[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func send(t *testing.T, conn net.Conn, message string) {
	if _, err := io.WriteString(conn, message); err != nil {
		t.Fatal(err)
	}
}

func answered(t *testing.T, conn net.Conn, want string) {
	t.Helper()
	buffer := make([]byte, len(want))
	if _, err := io.ReadFull(conn, buffer); err != nil || string(buffer) != want {
		t.Fatalf("answer %q, %v, want %q", buffer, err, want)
	}
}

// ended expects the connection to end without another byte.
func ended(t *testing.T, conn net.Conn) {
	t.Helper()
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	n, err := conn.Read(make([]byte, 1))
	if n != 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read %d bytes, %v, want the end of the connection", n, err)
	}
}

func TestProxyCutsTheMessageItIsToldTo(t *testing.T) {
	t.Parallel()
	for where, reaches := range map[lockstest.Where]bool{lockstest.BeforeRequest: false, lockstest.BeforeReply: true} {
		t.Run(string(where), func(t *testing.T) {
			t.Parallel()
			address, heard := echo(t)
			p := lockstest.NewProxy(t, address)
			first, second := dial(t, p), dial(t, p)
			p.Cut(3, where)
			send(t, first, "one")
			answered(t, first, "one")
			send(t, second, "two")
			answered(t, second, "two")
			if !p.Armed() {
				t.Error("the proxy has cut a message too early")
			}
			send(t, first, "three")
			ended(t, first)
			if p.Armed() {
				t.Error("the proxy would cut another message")
			}
			send(t, second, "four")
			answered(t, second, "four")
			want := []string{"one", "two", "three", "four"}
			if !reaches {
				want = []string{"one", "two", "four"}
			}
			var got []string
			for range want {
				got = append(got, <-heard)
			}
			if strings.Join(got, " ") != strings.Join(want, " ") {
				t.Errorf("the server heard %v, want %v", got, want)
			}
		})
	}
}

func TestProxySparesALaterReplyWhereTheMessageToCutHasNone(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	p := lockstest.NewProxy(t, listener.Addr().String())
	conn := dial(t, p)
	server, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	p.Cut(1, lockstest.BeforeReply)
	send(t, conn, "no question")
	answered(t, server, "no question")
	p.Pass()
	send(t, server, "an answer to another")
	answered(t, conn, "an answer to another")
}

func TestProxySwallowsAllWhileItIsABlackHole(t *testing.T) {
	t.Parallel()
	address, heard := echo(t)
	p := lockstest.NewProxy(t, address)
	spoilt, idle := dial(t, p), dial(t, p)
	for _, conn := range []net.Conn{spoilt, idle} {
		send(t, conn, "before")
		answered(t, conn, "before")
		<-heard
	}
	p.BlackHole()
	send(t, spoilt, "lost")
	spoilt.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if _, err := spoilt.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read from a black hole: %v, want nothing at all", err)
	}
	p.Pass()
	ended(t, spoilt)
	send(t, idle, "after")
	answered(t, idle, "after")
	if message := <-heard; message != "after" {
		t.Errorf("the server heard %q, want nothing between before and after", message)
	}
}

func TestProxyForgetsConnectionsThatEnd(t *testing.T) {
	t.Parallel()
	address, _ := echo(t)
	p := lockstest.NewProxy(t, address)
	conn := dial(t, p)
	send(t, conn, "hello")
	answered(t, conn, "hello")
	if n := p.Open(); n != 1 {
		t.Errorf("%d connections are open, want 1", n)
	}
	p.Break()
	ended(t, conn)
	for deadline := time.Now().Add(20 * time.Second); p.Open() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d connections are open after the proxy broke them", p.Open())
		}
	}
}
