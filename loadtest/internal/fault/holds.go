package fault

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"stock/internal/monotonic"
	"stock/internal/servers"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/scenario"
	"stock/loadtest/internal/topology"
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

// strikeHolds kills a process while buyers hold units and end their reservations through nginx, and while A holds one
// for as long as the story goes on. Then A confirms, and the story waits until all other reservations have expired, and
// reads them.
func (s *Stage) strikeHolds(ctx context.Context, what string, strike func(context.Context) error) error {
	if err := s.setManyUnits(ctx); err != nil {
		return err
	}
	s.run.CallsVersion = history.CallsVersion
	held, err := s.hold(ctx, s.Victim)
	if err != nil {
		return err
	}
	buyers, err := s.startBuyers(ctx)
	if err != nil {
		return err
	}
	defer buyers.driver.Close()
	err = eventually(ctx, "buyers have ended reservations", func() (bool, error) {
		return buyers.gone.Load() >= holdsBefore, nil
	})
	if err == nil {
		err = s.Together(ctx, what, strike)
	}
	after := monotonic.Now()
	monotonic.SleepUntil(ctx, after+int64(holdsGoOn))
	if err := errors.Join(err, buyers.stop()); err != nil {
		return err
	}
	confirm := traffic.About(held, history.Confirm, false)
	if err := s.call(ctx, s.Survivor, &confirm); err != nil {
		return err
	}
	if confirm.Outcome == history.Done {
		s.Provef("the victim had granted A a unit before %s, and the survivor has confirmed it after that", what)
	}
	if err := s.awaitHolds(ctx, slices.Concat(s.calls, buyers.result.Calls)); err != nil {
		return err
	}
	buyers.driver.ReadReservations(ctx, buyers.load, &buyers.result)
	s.calls = append(s.calls, buyers.result.Calls...)
	s.reportHolds(after)
	return ctx.Err()
}

// hold has A hold a unit for longer than any story lasts.
func (s *Stage) hold(ctx context.Context, at *topology.Isolated) (held history.Call, err error) {
	held = history.Call{
		Kind: history.Hold, Name: s.requestName("A"), GoodsID: s.Item, Count: 1, TTLMS: roundTime.Milliseconds(),
	}
	if err = s.call(ctx, at, &held); err == nil && held.Outcome != history.Done {
		err = fmt.Errorf("client A was not granted a reservation: %s", held.Error)
	}
	return held, err
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

// reportHolds says when somebody could hold units again, after the process was killed.
func (s *Stage) reportHolds(after int64) {
	unknown, next := 0, int64(0)
	for _, c := range s.calls {
		switch {
		case c.Outcome == history.Unknown:
			unknown++
		case c.Kind == history.Hold && c.Outcome == history.Done && c.ReceivedNS > after &&
			(next == 0 || c.ReceivedNS < next):
			next = c.ReceivedNS
		}
	}
	s.Stepf("%d clients have sent %d requests, %d of them with an unknown outcome", holdUsers, len(s.calls), unknown)
	if s.never = next == 0; s.never {
		next = monotonic.Now()
	}
	s.blocked = time.Duration(next - after)
}
