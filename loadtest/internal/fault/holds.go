package fault

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"stock/internal/monotonic"
	"stock/internal/servers"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/scenario"
	"stock/loadtest/internal/traffic"
)

// holdScenarios are about units that are held when a process is killed, while many clients hold, confirm and cancel.
var holdScenarios = []Scenario{
	{
		Name:    "holds-after-crash/replica",
		Title:   "One of two replicas is killed while it holds units for its clients (SIGKILL).",
		Applies: takesReservations,
		Claim:   keepsHolds,
		Deploy: func(ctx context.Context, l *Lab) (*Deployment, error) {
			d, err := l.deploy(ctx, l.Topology.Addresses())
			if err != nil {
				return nil, err
			}
			return d.behindNginx(ctx)
		},
		Play: func(ctx context.Context, s *Stage) error {
			return s.strikeHolds(ctx, "the victim is killed", func(context.Context) error { return s.Victim.Kill() })
		},
	},
	{
		Name:    "holds-after-crash/mysql",
		Title:   "MySQL is killed while units are held, and started again (SIGKILL).",
		Applies: takesReservations,
		Claim:   keepsHolds,
		Deploy: func(ctx context.Context, l *Lab) (*Deployment, error) {
			d, err := onOwnMySQL(ctx, l, servers.MySQLOptions{})
			if err != nil {
				return nil, err
			}
			return d.behindNginx(ctx)
		},
		Play: func(ctx context.Context, s *Stage) error {
			return s.strikeHolds(ctx, "MySQL is killed and started again", s.MySQL.Restart)
		},
	},
}

// takesReservations applies to strategies that take reservations.
func takesReservations(s scenario.Strategy) string {
	if len(s.Reservations) == 0 {
		return "it takes no reservations"
	}
	return ""
}

func keepsHolds(scenario.Strategy) Claim {
	return claim("keeps what was granted or confirmed, and puts back what expires", report.Safe)
}

// Times and sizes of a load of reservations.
const (
	holdUsers    = 32
	holdTTL      = time.Second
	holdsBefore  = 40              // buyers who have come and gone before the process is killed
	holdsGoOn    = 2 * time.Second // how long buyers come after that
	holdsMissing = 5 * time.Second // how long the units of expired reservations may be missing
)

// strikeHolds kills a process while buyers hold units and end their reservations through nginx. Then it waits until
// all reservations have expired, and reads them.
func (s *Stage) strikeHolds(ctx context.Context, what string, strike func(context.Context) error) error {
	if err := s.setManyUnits(ctx); err != nil {
		return err
	}
	s.run.CallsVersion = history.CallsVersion
	buyers, err := s.startBuyers(ctx)
	if err != nil {
		return err
	}
	defer buyers.driver.Close()
	err = eventually(ctx, "buyers have ended reservations", func() (bool, error) {
		return buyers.gone.Load() >= holdsBefore, nil
	})
	before := monotonic.Now()
	if err == nil {
		err = s.Together(ctx, what, strike)
	}
	after := monotonic.Now()
	monotonic.SleepUntil(ctx, after+int64(holdsGoOn))
	if err := errors.Join(err, buyers.stop()); err != nil {
		return err
	}
	if err := s.awaitHolds(ctx, buyers.result.Calls); err != nil {
		return err
	}
	buyers.driver.ReadReservations(ctx, buyers.load, &buyers.result)
	s.calls = buyers.result.Calls
	s.reportHolds(before, after)
	return ctx.Err()
}

// buyers are clients who hold units and end their reservations, until they are stopped.
type buyers struct {
	driver *traffic.Driver
	load   traffic.Load
	gone   atomic.Int64 // buyers who have come and gone
	over   chan struct{}
	end    chan struct{}
	result traffic.Result
	err    error
}

func (s *Stage) startBuyers(ctx context.Context) (*buyers, error) {
	mix, err := traffic.NewMix(traffic.MixConfig{Goods: 1, FirstItem: s.Item, MinCount: 1, MaxCount: 2})
	if err != nil {
		return nil, err
	}
	b := &buyers{over: make(chan struct{}), end: make(chan struct{})}
	if b.driver, err = traffic.NewDriver(s.nginx.URL, holdUsers); err != nil {
		return nil, err
	}
	b.load = traffic.Load{
		Strategy: s.Strategy.Name, Store: s.Store, Mix: mix, Users: holdUsers, Timeout: clientTimeout,
		Duration: roundTime, Until: b.end, RequestPrefix: s.requestName("load"), Answered: &b.gone,
		Reservations: &traffic.Reservations{TTL: holdTTL},
	}
	s.inBackground(func() {
		defer close(b.over)
		b.result, b.err = b.driver.Run(ctx, b.load)
	})
	return b, nil
}

// stop lets no more buyers come, and waits until the last one has gone.
func (b *buyers) stop() error {
	close(b.end)
	<-b.over
	return b.err
}

// awaitHolds waits until every reservation has expired and its units are back in the stock, or should be.
func (s *Stage) awaitHolds(ctx context.Context, calls []history.Call) error {
	expired := scenario.LastExpiry(calls)
	confirmed := scenario.ConfirmedUnits(calls)[s.Item]
	for deadline := expired + int64(holdsMissing); monotonic.Now() < deadline; {
		stock, err := s.Oracle.Stock(ctx, s.durable(), []int64{s.Item})
		if err != nil {
			return err
		}
		if monotonic.Now() >= expired && stock[s.Item] == s.run.Initial[s.Item]-confirmed {
			s.Stepf("every reservation has ended, and no unit is held any more")
			return nil
		}
		if !monotonic.SleepUntil(ctx, monotonic.Now()+int64(pollInterval)) {
			return ctx.Err()
		}
	}
	s.Stepf("every reservation has ended, and units are still missing")
	return nil
}

// reportHolds proves that units were held while the process was killed, which was between two moments, and says when
// somebody could hold some again.
func (s *Stage) reportHolds(before, after int64) {
	held, units, unknown, next := 0, int64(0), 0, int64(0)
	for _, c := range s.calls {
		granted := c.Kind == history.Hold && c.Outcome == history.Done
		switch {
		case c.Outcome == history.Unknown:
			unknown++
		case granted && c.ReceivedNS > after && (next == 0 || c.ReceivedNS < next):
			next = c.ReceivedNS
		case granted && !c.Again && c.ReceivedNS < before && s.heldUntil(c, after) && s.struck(c.Replica):
			held, units = held+1, units+c.Count
		}
	}
	if held > 0 {
		s.Provef("%d reservations of %d units had been granted before and were held after it, by %s", held, units,
			s.whoStruck())
	}
	s.Stepf("%d clients have sent %d requests, %d of them with an unknown outcome", holdUsers, len(s.calls), unknown)
	if s.never = next == 0; s.never {
		next = monotonic.Now()
	}
	s.blocked = time.Duration(next - after)
}

// struck reports whether the story strikes what a replica has granted: if MySQL is killed, that of both.
func (s *Stage) struck(replica string) bool { return s.MySQL != nil || replica == s.Victim.Name }

func (s *Stage) whoStruck() string {
	if s.MySQL != nil {
		return "both replicas"
	}
	return "the victim"
}

// heldUntil reports whether a reservation was still held at a time: its own time was not over, and nobody had asked to
// end it.
func (s *Stage) heldUntil(held history.Call, until int64) bool {
	expires := held.SentNS + held.TTLMS*int64(time.Millisecond)
	return until < expires && !slices.ContainsFunc(s.calls, func(c history.Call) bool {
		return c.Reservation == held.Reservation && (c.Kind == history.Confirm || c.Kind == history.Cancel) &&
			c.SentNS < until
	})
}
