package lockstest

import (
	"context"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"stock/internal/locks"
	"stock/internal/monotonic"
	"stock/internal/tcpproxy"
)

// The load of Stress.
const (
	sites       = 3 // clients, each with its own network
	workers     = 2 // per client
	stressTime  = 1500 * time.Millisecond
	stressLimit = Patience // on a slow machine
	minGrants   = 30
	minStopped  = 2 // holders that lost their network
)

// Stress makes clients contend for one key while connections are cut, requests are delayed, the servers are stopped
// and continued, and holders lose their network and return late. The history must be that of one lock. The seed
// determines the random choices; their timing differs from run to run.
func Stress(t *testing.T, s Subject, seed uint64) {
	s.needs(t, Exclusive)
	s.cuts(t)
	if s.Own == nil {
		t.Skip("this lock has no server")
	}
	t.Logf("seed %d", seed)
	d := s.Own(t)
	key, h := freshKey(), NewHistory()
	ctx, stop := context.WithTimeout(t.Context(), stressLimit)
	defer stop()

	var networks []*tcpproxy.Proxy
	var contenders sync.WaitGroup
	stopped := make(chan struct{}, 1000)
	for site := range sites {
		l, p := proxied(t, d, s.short())
		networks = append(networks, p)
		for worker := range workers {
			c := contender{
				history: h, locker: l, network: p, key: key, lease: s.short().Lease,
				random:  rand.New(rand.NewPCG(seed, uint64(1+site*workers+worker))),
				stopped: stopped,
			}
			contenders.Go(func() { c.run(ctx) })
		}
	}
	var chaos sync.WaitGroup
	chaos.Go(func() { injectFaults(ctx, t, d, networks, s.short().Lease, rand.New(rand.NewPCG(seed, 0))) })

	for enough := time.Now().Add(stressTime); ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(enough) && h.Grants() >= minGrants && len(stopped) >= minStopped {
			break
		}
	}
	stop()
	contenders.Wait()
	chaos.Wait()
	t.Logf("%d grants, %d holders stopped", h.Grants(), len(stopped))
	if h.Grants() < minGrants || len(stopped) < minStopped {
		t.Errorf("%d grants and %d stopped holders, want at least %d and %d", h.Grants(), len(stopped), minGrants, minStopped)
	}
	if err := h.Check(); err != nil {
		t.Errorf("seed %d: %v", seed, err)
	}
}

// contender locks and unlocks again and again.
type contender struct {
	history *History
	locker  locks.Locker
	network *tcpproxy.Proxy
	key     string
	lease   time.Duration
	random  *rand.Rand
	stopped chan<- struct{}
}

func (c contender) run(ctx context.Context) {
	for ctx.Err() == nil {
		wait, cancel := context.WithTimeout(ctx, 2*c.lease)
		g, err := c.history.Lock(wait, c.locker, c.key)
		if err != nil {
			cancel()
			_ = monotonic.Sleep(ctx, c.upTo(10*time.Millisecond))
			continue
		}
		if c.random.IntN(20) == 0 {
			// It loses its network, and returns after its lease has ended.
			c.network.BlackHole()
			for ctx.Err() == nil && time.Now().Before(g.Deadline()) {
				_ = monotonic.Sleep(ctx, time.Until(g.Deadline()))
			}
			_ = monotonic.Sleep(ctx, c.upTo(c.lease/4))
			c.network.Pass()
			c.stopped <- struct{}{}
		} else {
			_ = monotonic.Sleep(g.Context(), c.upTo(2*time.Millisecond))
		}
		_ = g.Unlock()
		cancel()
	}
}

func (c contender) upTo(d time.Duration) time.Duration {
	return time.Duration(c.random.Int64N(int64(d)))
}

// injectFaults causes one fault after the other, several per lease, since many faults block the lock for the rest of
// a lease.
func injectFaults(
	ctx context.Context, t *testing.T, d Private, networks []*tcpproxy.Proxy, lease time.Duration, random *rand.Rand,
) {
	between := func(least, most time.Duration) time.Duration {
		return least + time.Duration(random.Int64N(int64(most-least)))
	}
	for ctx.Err() == nil {
		network := networks[random.IntN(len(networks))]
		switch random.IntN(5) {
		case 0:
			network.Break()
		case 1:
			network.Cut(1+random.IntN(20), tcpproxy.BeforeRequest)
		case 2:
			network.Cut(1+random.IntN(20), tcpproxy.BeforeReply)
		case 3:
			network.Delay(between(time.Millisecond, 20*time.Millisecond))
			_ = monotonic.Sleep(ctx, between(10*time.Millisecond, 50*time.Millisecond))
			network.Delay(0)
		case 4:
			d.Signal(t, syscall.SIGSTOP)
			_ = monotonic.Sleep(ctx, between(50*time.Millisecond, 300*time.Millisecond))
			d.Signal(t, syscall.SIGCONT)
		}
		_ = monotonic.Sleep(ctx, between(lease/10, lease/2))
	}
}
