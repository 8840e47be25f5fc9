package wire

import (
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/internal/must"
	"stock/internal/servers/serverstest"
)

var shared serverstest.Servers

func TestMain(m *testing.M) { os.Exit(shared.Run(m)) }

// limit is how long a test waits for what must happen.
const limit = 2 * time.Minute

// gate records exchanges, and holds those whose text contains a word until the test decides.
type gate struct {
	mu       sync.Mutex
	answered []*Exchange
	errs     map[*Exchange]error
	arrived  int
	heard    int
	hold     string
	held     chan *heldExchange
}

type heldExchange struct {
	*Exchange
	gone   <-chan struct{}
	decide chan Action // buffered
}

func (g *gate) Arrive(e *Exchange, gone <-chan struct{}) Action {
	g.mu.Lock()
	g.arrived++
	hold := g.hold != "" && strings.Contains(e.Text, g.hold)
	g.mu.Unlock()
	if !hold {
		return Pass
	}
	h := &heldExchange{e, gone, make(chan Action, 1)}
	g.held <- h
	select {
	case action := <-h.decide:
		return action
	case <-gone:
	}
	select { // late
	case action := <-h.decide:
		return action
	case <-time.After(limit):
		return LoseBoth
	}
}

func (g *gate) Answered(e *Exchange, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, twice := g.errs[e]; twice {
		panic("Answered twice: " + e.Text)
	}
	g.errs[e] = err
	g.answered = append(g.answered, e)
}

func (g *gate) Heard() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.heard++
}

func (g *gate) holding(word string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hold = word
}

// next waits until an exchange is held.
func (g *gate) next(t *testing.T) *heldExchange {
	t.Helper()
	select {
	case h := <-g.held:
		return h
	case <-time.After(limit):
		t.Fatal("no request has arrived")
		return nil
	}
}

// find waits until an exchange whose text begins with prefix is answered, and returns the last such one.
func (g *gate) find(t *testing.T, prefix string) *Exchange {
	t.Helper()
	var found *Exchange
	serverstest.Eventually(t, prefix+" is answered", func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		for _, e := range slices.Backward(g.answered) {
			if strings.HasPrefix(e.Text, prefix) {
				found = e
				return true
			}
		}
		return false
	})
	return found
}

func (g *gate) err(e *Exchange) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.errs[e]
}

// commands returns a client that tells the keys of commands.
func commands(t testing.TB) *redis.Client {
	t.Helper()
	client := redis.NewClient(shared.Redis(t))
	t.Cleanup(func() { client.Close() })
	return client
}

func start(t testing.TB, protocol Protocol, server string) (*Proxy, *gate) {
	t.Helper()
	g := &gate{errs: map[*Exchange]error{}, held: make(chan *heldExchange, 64)}
	p, err := Start(protocol, server, g, commands(t))
	must.Succeed(t, err)
	t.Cleanup(func() {
		p.Close()
		g.mu.Lock()
		defer g.mu.Unlock()
		if len(g.answered) != g.arrived {
			t.Errorf("%d exchanges arrived, and %d were answered", g.arrived, len(g.answered))
		}
	})
	return p, g
}

func wantNames(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}
