package wire

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"testing"
	"time"

	"stock/internal/must"
	"stock/internal/servers/serverstest"
)

func garbage(random *rand.Rand, protocol Protocol) []byte {
	data := make([]byte, random.IntN(300))
	for i := range data {
		data[i] = byte(random.Uint32())
	}
	starts := []string{"", "*2\r\n$3\r\nGET\r\n$1\r\n", "*-1\r\n", "*1\r\n$99999999\r\n", "\r\n", "PING\r\n",
		"*3\r\n$4\r\nEVAL\r\n"}
	if protocol == MySQL {
		command := string([]byte{byte(1 + random.IntN(60)), 0, 0, 0, byte(random.IntN(32))})
		starts = []string{"", "\x20\x00\x00\x01", command, command, "\xff\xff\xff\x00"}
	}
	if protocol == Postgres {
		kind := "QPBDECSHFXdcfTtDCEZsI12nGAK"[random.IntN(27)]
		message := string([]byte{kind, 0, 0, byte(random.IntN(2)), byte(random.IntN(256))})
		starts = []string{
			"", message, message, message, "\x00\x00\x00\x20\x00\x03\x00\x00", "\x00\x00\x00\x08\x04\xd2\x16\x2f",
		}
	}
	return append([]byte(starts[random.IntN(len(starts))]), data...)
}

// The parsers get whatever a client or a server may send, cut off anywhere.
func TestParsersReadAnything(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	asked := commands(t)
	for range 5000 {
		data := garbage(random, Protocol(random.IntN(3)))
		s := newMySQLSession(&Conn{})
		s.phase = mysqlPhase(random.IntN(int(lists) + 1))
		s.statements[0] = &statement{text: "SELECT ?, ?, ?", params: 3, long: map[int]bool{1: true}}
		for range 4 {
			packet := append(make([]byte, 4), data[:random.IntN(len(data)+1)]...)
			if random.IntN(3) == 0 {
				packet = append([]byte{0, 0, 0, 0, comStmtExecute, 0, 0, 0, 0}, data...)
			}
			e, _ := s.request(frame{raw: packet})
			_ = s.reply(frame{raw: packet}, e)
			_ = s.reply(frame{raw: packet}, &Exchange{})
		}
		r := newRedisSession(&Conn{}, asked)
		f, err := r.readRequest(bufio.NewReader(bytes.NewReader(data)))
		if len(f.commands) > 0 && err == nil {
			_, _ = r.request(f)
		}
		if f, err := r.readReply(bufio.NewReader(bytes.NewReader(data))); err == nil {
			_ = r.reply(f, &Exchange{})
		}
		readAsPostgres(data, random)
	}
}

func readAsPostgres(data []byte, random *rand.Rand) {
	s := newPostgresSession(&Conn{})
	s.started, s.greeted = random.IntN(4) > 0, random.IntN(4) > 0
	s.usable = s.started && s.greeted
	s.statements[""] = &prepared{text: "SELECT $1, $2", params: []uint32{20, 1700}}
	r := bufio.NewReader(bytes.NewReader(data))
	for {
		f, err := s.readRequest(r)
		if err != nil {
			break
		}
		_, _ = s.request(f)
	}
	r = bufio.NewReader(bytes.NewReader(data))
	for {
		f, err := s.readReply(r)
		if err != nil {
			break
		}
		_ = s.reply(f, nil)
		_ = s.reply(f, &Exchange{})
	}
}

// dial returns a connection to a proxy, for a while.
func dial(t *testing.T, p *Proxy) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	must.Succeed(t, err)
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(limit))
	return conn
}

func TestRawRedis(t *testing.T) {
	t.Parallel()
	p, g := start(t, Redis, shared.Redis(t).Addr)
	conn := dial(t, p)
	r := bufio.NewReader(conn)
	for _, c := range []struct{ send, want string }{
		{"\r\nPING\r\n", "+PONG\r\n"}, // an empty line has no reply
		{"*0\r\n*1\r\n$4\r\nPING\r\n", "+PONG\r\n"},
		{"ECHO a\r\nECHO b\r\n", "$1\r\na\r\n$1\r\nb\r\n"},
		{"UNSUBSCRIBE\r\n", "*3\r\n$11\r\nunsubscribe\r\n$-1\r\n:0\r\n"},
		{"PING\r\n*1\r\n$x\r\n", "+PONG\r\n-ERR Protocol error"},
	} {
		fmt.Fprint(conn, c.send)
		got := make([]byte, len(c.want))
		if _, err := io.ReadFull(r, got); err != nil || string(got) != c.want {
			t.Fatalf("%q was answered %q, %v, want %q", c.send, got, err, c.want)
		}
	}
	g.find(t, "ECHO a\nECHO b")
}

func TestFramesPassUnasked(t *testing.T) {
	t.Parallel()
	p, g := start(t, Frames, shared.Redis(t).Addr)
	conn := dial(t, p)
	fmt.Fprint(conn, "PING\r\n")
	if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || line != "+PONG\r\n" {
		t.Fatalf("%q, %v", line, err)
	}
	if p.Busy() {
		t.Error("the proxy is busy, although everything is answered")
	}
	g.mu.Lock()
	if g.heard != 2 || g.arrived > 0 {
		t.Errorf("%d frames were pushed, and %d requests arrived", g.heard, g.arrived)
	}
	g.mu.Unlock()
	serverstest.Eventually(t, "a request without an answer makes the proxy busy", func() bool {
		fmt.Fprint(conn, "x") // and more of it, in case it was looked at too late
		return p.Busy()
	})
	serverstest.Eventually(t, "the answer is not waited for any more", func() bool { return !p.Busy() })
}

func TestAProxyIsBusyFromTheFirstByteOfARequest(t *testing.T) {
	t.Parallel()
	p, g := start(t, Redis, shared.Redis(t).Addr)
	conn := dial(t, p)
	serverstest.Eventually(t, "the connection is open", func() bool { return !p.Busy() })
	if fmt.Fprint(conn, "EC"); runtime.GOOS == "linux" && !p.Busy() { // other systems do not tell what has arrived
		t.Error("nobody knows that a request is on its way")
	}
	g.holding("ECHO")
	fmt.Fprint(conn, "HO a\r\n")
	held := g.next(t)
	held.Noted()
	if p.Busy() {
		t.Error("the proxy is busy, although it holds the request")
	}
	held.decide <- Pass
	serverstest.Eventually(t, "the request is answered", func() bool { return !p.Busy() })
}
