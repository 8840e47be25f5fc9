package tcpproxy_test

import (
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"stock/internal/must"
	"stock/internal/tcpproxy"
)

// echo starts a server that answers each message with itself, and returns the messages that it receives.
func echo(t testing.TB) (address string, received <-chan string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
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

func dial(t testing.TB, p *tcpproxy.Proxy) net.Conn {
	conn, err := net.Dial("tcp", p.Addr())
	must.Succeed(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

func send(t testing.TB, conn net.Conn, message string) {
	_, err := io.WriteString(conn, message)
	must.Succeed(t, err)
}

func wantAnswer(t testing.TB, conn net.Conn, want string) {
	t.Helper()
	buffer := make([]byte, len(want))
	if _, err := io.ReadFull(conn, buffer); err != nil || string(buffer) != want {
		t.Fatalf("answer %q, %v, want %q", buffer, err, want)
	}
}

// exchange sends a message and waits for its echo.
func exchange(t testing.TB, conn net.Conn, message string) {
	t.Helper()
	send(t, conn, message)
	wantAnswer(t, conn, message)
}

// wantSilence expects no answer for a short while.
func wantSilence(t *testing.T, conn net.Conn) {
	t.Helper()
	conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Read: %v, want a timeout", err)
	}
	conn.SetReadDeadline(time.Time{})
}

// wantEnd expects the connection to end without another byte.
func wantEnd(t *testing.T, conn net.Conn) {
	t.Helper()
	conn.SetDeadline(time.Now().Add(5 * time.Minute))
	n, err := conn.Read(make([]byte, 1))
	if n != 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read %d bytes, %v, want the end of the connection", n, err)
	}
}

func TestCutEndsTheConnectionOfTheKthMessage(t *testing.T) {
	t.Parallel()
	for where, want := range map[tcpproxy.CutPoint][]string{
		tcpproxy.BeforeRequest: {"one", "two", "four"},
		tcpproxy.BeforeReply:   {"one", "two", "three", "four"},
	} {
		t.Run(string(where), func(t *testing.T) {
			t.Parallel()
			address, received := echo(t)
			p := tcpproxy.New(t, address)
			first, second := dial(t, p), dial(t, p)
			p.Cut(3, where)
			exchange(t, first, "one")
			exchange(t, second, "two")
			if !p.Armed() {
				t.Error("the proxy cut a message too early")
			}
			send(t, first, "three")
			wantEnd(t, first)
			if p.Armed() {
				t.Error("the proxy would cut another message")
			}
			exchange(t, second, "four")
			var got []string
			for range want {
				got = append(got, <-received)
			}
			if strings.Join(got, " ") != strings.Join(want, " ") {
				t.Errorf("the server received %v, want %v", got, want)
			}
		})
	}
}

// The server of a message of several commands has more to do after its first reply.
func TestCutBeforeTheReplyLetsTheServerFinish(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	t.Cleanup(func() { listener.Close() })
	p := tcpproxy.New(t, listener.Addr().String())
	client := dial(t, p)
	p.Cut(1, tcpproxy.BeforeReply)
	send(t, client, "two commands")
	server, err := listener.Accept()
	must.Succeed(t, err)
	wantAnswer(t, server, "two commands")
	send(t, server, "first reply")
	wantEnd(t, server) // no more commands come
	wantSilence(t, client)
	send(t, server, "second reply")
	server.Close()
	wantEnd(t, client)
}

func TestBlackHoleSwallowsMessagesUntilPass(t *testing.T) {
	t.Parallel()
	address, received := echo(t)
	p := tcpproxy.New(t, address)
	spoilt, idle := dial(t, p), dial(t, p)
	for _, conn := range []net.Conn{spoilt, idle} {
		exchange(t, conn, "before")
		<-received
	}
	p.BlackHole()
	send(t, spoilt, "lost")
	wantSilence(t, spoilt)
	p.Pass()
	wantEnd(t, spoilt)
	exchange(t, idle, "after")
	if message := <-received; message != "after" {
		t.Errorf("the server received %q, want nothing between before and after", message)
	}
}

func TestACaughtMessageReachesTheServerAfterItsClientHasGone(t *testing.T) {
	t.Parallel()
	address, received := echo(t)
	proxy := tcpproxy.New(t, address)
	caught := proxy.Catch(func(m tcpproxy.Message) bool { return strings.HasPrefix(string(m.Data), "late") })

	exchange(t, dial(t, proxy), "first")
	client := dial(t, proxy)
	send(t, client, "late write")
	<-caught.Arrived()
	if caught.Bytes() != len("late write") {
		t.Errorf("%d bytes are held, want %d", caught.Bytes(), len("late write"))
	}
	client.Close()
	exchange(t, dial(t, proxy), "later, and not caught")
	exchange(t, dial(t, proxy), "late, but the second such message")
	select {
	case <-caught.Answered():
		t.Error("the message is answered while it is held")
	default:
	}
	caught.Release()
	caught.Release()
	<-caught.Answered()

	var got []string
	for range 4 {
		got = append(got, <-received)
	}
	want := []string{"first", "later, and not caught", "late, but the second such message", "late write"}
	if !slices.Equal(got, want) {
		t.Errorf("the server received %q, want %q", got, want)
	}
}

func TestACaughtMessageIsCutBeforeOrAfterItReachesTheServer(t *testing.T) {
	t.Parallel()
	address, received := echo(t)
	for point, want := range map[tcpproxy.CutPoint]string{
		tcpproxy.BeforeRequest: "later",
		tcpproxy.BeforeReply:   "caught",
	} {
		proxy := tcpproxy.New(t, address)
		caught := proxy.Catch(func(tcpproxy.Message) bool { return true })
		client := dial(t, proxy)
		send(t, client, "caught")
		<-caught.Arrived()
		caught.Cut(point)
		wantEnd(t, client)
		<-caught.Answered()
		exchange(t, dial(t, proxy), "later")
		if got := <-received; got != want {
			t.Errorf("cut %s: the server first received %q, want %q", point, got, want)
		}
		for len(received) > 0 {
			<-received
		}
	}
}

func TestTheFirstOfReleaseAndCutDecides(t *testing.T) {
	t.Parallel()
	for _, point := range []tcpproxy.CutPoint{tcpproxy.BeforeRequest, tcpproxy.BeforeReply} {
		for what, catch := range map[string]func(*tcpproxy.Proxy, func(tcpproxy.Message) bool) *tcpproxy.Caught{
			"message": (*tcpproxy.Proxy).Catch,
			"reply":   (*tcpproxy.Proxy).CatchReply,
		} {
			t.Run(what+" cut "+string(point), func(t *testing.T) {
				t.Parallel()
				address, _ := echo(t)
				proxy := tcpproxy.New(t, address)
				hold := func() (net.Conn, *tcpproxy.Caught) {
					caught, client := catch(proxy, func(tcpproxy.Message) bool { return true }), dial(t, proxy)
					send(t, client, "caught")
					<-caught.Arrived()
					return client, caught
				}
				client, caught := hold()
				caught.Release()
				caught.Cut(point)
				wantAnswer(t, client, "caught")
				exchange(t, client, "the next message on the connection")

				client, caught = hold()
				caught.Cut(point)
				caught.Release()
				wantEnd(t, client)
			})
		}
	}
}

func TestACaughtReplyIsDroppedIfItIsCutOrItsClientGoes(t *testing.T) {
	t.Parallel()
	address, _ := echo(t)
	proxy := tcpproxy.New(t, address)
	for _, end := range []func(*tcpproxy.Caught, net.Conn){
		func(c *tcpproxy.Caught, _ net.Conn) { c.Cut(tcpproxy.BeforeReply) },
		func(c *tcpproxy.Caught, _ net.Conn) { c.Cut(tcpproxy.BeforeRequest) },
		func(_ *tcpproxy.Caught, client net.Conn) { _ = client.(*net.TCPConn).CloseWrite() },
	} {
		caught := proxy.CatchReply(func(tcpproxy.Message) bool { return true })
		client := dial(t, proxy)
		send(t, client, "read")
		<-caught.Arrived()
		end(caught, client)
		wantEnd(t, client)
		<-caught.Answered()
	}
}

func TestAProxyThatIsClosedDropsWhatItHolds(t *testing.T) {
	t.Parallel()
	address, received := echo(t)
	proxy, err := tcpproxy.Start(address)
	must.Succeed(t, err)
	caught := proxy.Catch(func(tcpproxy.Message) bool { return true })
	send(t, dial(t, proxy), "held")
	<-caught.Arrived()
	proxy.Close()
	caught.Release()
	select {
	case message := <-received:
		t.Errorf("the server received %q", message)
	default:
	}
}

// A server that sees its client go drops a message that it has not read yet.
func TestTheConnectionOfACaughtMessageStaysOpenUntilItIsAnswered(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	t.Cleanup(func() { listener.Close() })
	beforeAnswer := make(chan error, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			beforeAnswer <- err
			return
		}
		defer conn.Close()
		buffer := make([]byte, 64)
		if _, err := conn.Read(buffer); err != nil {
			beforeAnswer <- err
			return
		}
		_ = conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		_, err = conn.Read(buffer) // must find the connection open, and nothing to read
		beforeAnswer <- err
		_, _ = io.WriteString(conn, "done")
	}()
	proxy := tcpproxy.New(t, listener.Addr().String())
	caught := proxy.Catch(func(tcpproxy.Message) bool { return true })
	client := dial(t, proxy)
	send(t, client, "late write")
	<-caught.Arrived()
	client.Close()
	caught.Release()
	if err := <-beforeAnswer; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("before it answered, the server read %v, want an open connection", err)
	}
	<-caught.Answered()
}
