package fault

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"stock/internal/tcpproxy"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/oracle"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/scenario"
)

// holderDies is the story of a replica that is killed inside the critical section.
var holderDies = Scenario{
	Name:    "holder-dies",
	Title:   "The replica that is deducting is killed inside its critical section (SIGKILL).",
	Applies: everyStrategy,
	Claim: func(s scenario.Strategy) Claim {
		words := s.Claim.HolderCrash
		switch words {
		case "blocks-until-lease-ends":
			return claim(words, report.Blocked)
		case "blocks-forever":
			return claim(words, report.Unavailable)
		case "loses-units":
			return claim(words, report.Unsafe)
		}
		return claim(words, report.Safe)
	},
	Deploy: deployPaused,
	Play: func(ctx context.Context, s *Stage) error {
		holder, point, err := s.park(ctx, order{client: "A", at: s.Victim, timeout: patientTimeout})
		if err != nil {
			return err
		}
		blocked := time.Now() // since then, if the lock is a lease
		err = s.Together(ctx, "the victim is killed", func(context.Context) error { return s.Victim.Kill() })
		if err != nil {
			return err
		}
		if s.Strategy.Claim.HolderCrash != "blocks-until-lease-ends" {
			blocked = time.Now() // the other cells may have taken a while to get ready
		}
		if err := s.diedUnanswered(holder); err != nil {
			return err
		}
		s.Provef("A was parked at %s on the victim, which never answered it", point)
		return s.buy(ctx, order{client: "B", at: s.Survivor, count: 2}, blocked)
	},
}

// diedUnanswered waits until the request has ended with its replica. It fails if the replica had answered before.
func (s *Stage) diedUnanswered(p *pending) error {
	if err := p.wait(); err != nil {
		return err
	}
	if p.op.Status != 0 {
		return fmt.Errorf("%s was answered before the victim was killed: %d %s", p.request, p.op.Status, p.op.Error)
	}
	return nil
}

// patience is how long the next buyer tries. It exceeds every lease, and the time in which the victim gives up a
// request that MySQL does not answer.
const patience = 14 * time.Second

// lateWrite is the story of a write that leaves the replica in time and reaches the store too late.
var lateWrite = Scenario{
	Name:    "late-write",
	Title:   "The holder's write is delayed on the wire until the next buyer has bought.",
	Applies: everyStrategy,
	Claim: func(s scenario.Strategy) Claim {
		words := s.Claim.LateWrite
		switch words {
		case "loses-updates":
			return claim(words, report.Unsafe)
		case "blocks":
			return claim(words, report.Safe, report.Blocked, report.Unavailable)
		case "refused":
			return claim(words, report.Safe, report.Blocked) // the holder may keep its lock until it gives up
		}
		return claim(words, report.Safe)
	},
	Play: func(ctx context.Context, s *Stage) error {
		if s.Strategy.Claim.LateCaveat != "" {
			if err := s.sellAtStartOfSecond(ctx); err != nil {
				return err
			}
		}
		a, err := s.holdWrite(ctx, 0)
		if err != nil {
			return err
		}
		defer a.write.Release()
		s.Provef("the proxy between the victim and %s holds A's write of %d bytes", s.Store, a.write.Bytes())
		return s.buyBeforeWrite(ctx, a)
	},
}

// sellAtStartOfSecond sells a unit in a second that has just begun. A timestamp of whole seconds does not tell the next
// sales from this one.
func (s *Stage) sellAtStartOfSecond(ctx context.Context) error {
	now := time.Now()
	select {
	case <-time.After(now.Truncate(time.Second).Add(time.Second).Sub(now)):
	case <-ctx.Done():
		return ctx.Err()
	}
	_, err := s.send(ctx, order{client: "Z", at: s.Survivor})
	return err
}

// writesStock matches the message that changes the item's stock.
func (s *Stage) writesStock(m tcpproxy.Message) bool {
	item := strconv.FormatInt(s.Item, 10)
	if !bytes.Contains(m.Data, []byte(item)) {
		return false
	}
	switch inMySQL := bytes.Contains(m.Data, []byte("SET stock = ")); {
	case s.Store == oracle.Slots && bytes.Contains(m.Data, []byte("INSERT INTO good_slot ")): // it shares units out anew
		return true
	case s.Store == oracle.Units:
		return bytes.Contains(m.Data, []byte("DELETE good_unit "))
	case s.Store == oracle.MySQL, s.Store == oracle.Slots, inMySQL && s.Strategy.WriteThrough:
		return inMySQL
	}
	return bytes.Contains(m.Data, []byte("stock:{"+item+"}")) && redisWrite.Match(m.Data)
}

// redisWrite matches the commands by which strategies change a stock.
var redisWrite = regexp.MustCompile(`(?i)\r\n(?:set|decrby|evalsha)\r\n`)

// clientRetries is the story of a client whose answer is lost, and that sends again.
var clientRetries = Scenario{
	Name:    "client-retries",
	Title:   "The answer is lost on its way to the client, which sends its request again to the other replica.",
	Applies: everyStrategy,
	Claim:   retryClaim,
	Play: func(ctx context.Context, s *Stage) error {
		front, err := tcpproxy.Start(s.Victim.Address())
		if err != nil {
			return err
		}
		defer front.Close()
		front.Cut(1, tcpproxy.BeforeReply)
		first, err := s.send(ctx, order{client: "A", at: s.Victim, through: "http://" + front.Addr()})
		if err != nil {
			return err
		}
		stock, err := s.Oracle.Stock(ctx, s.Store, []int64{s.Item})
		switch {
		case err != nil:
			return err
		case first.Outcome != history.Unknown || front.Armed() || stock[s.Item] != units-1:
			return fmt.Errorf("client A was told %q, and %s has %d units", first.Outcome, s.Store, stock[s.Item])
		}
		s.Provef("the proxy in front of the victim cut the connection when the answer came; %s has %d units", s.Store,
			stock[s.Item])
		_, err = s.send(ctx, s.again())
		return err
	},
}
