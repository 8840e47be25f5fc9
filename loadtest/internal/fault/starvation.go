package fault

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"stock/internal/tcpproxy"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/scenario"
)

var starvationScenarios = []Scenario{overtaken, pollsInVain}

// overtaken is the story of a buyer whose every write finds that somebody else was faster. Only A is blocked by that:
// the others buy all the time.
var overtaken = Scenario{
	Name:  "starvation/overtaken",
	Title: "Each time A's write is on its way to the store, somebody else buys first.",
	Applies: only("optimistic-version", "optimistic-spin", "optimistic-stock", "optimistic-timestamp-us", "redis-watch",
		"update", "ledger", "batch", "batch-ledger", "redis-script"),
	Claim: func(s scenario.Strategy) Claim {
		if s.Claim.LateWrite == "refused" {
			return claim("A tries again until it gives up", report.Unavailable)
		}
		return claim("A buys at its first try", report.Safe)
	},
	Deploy: patient(),
	Play: func(ctx context.Context, s *Stage) error {
		if err := s.setManyUnits(ctx); err != nil {
			return err
		}
		proxy := s.storeProxy(s.Victim)
		write := proxy.Catch(s.writesStock)
		began := time.Now()
		a := s.start(ctx, order{client: "A", at: s.Victim, timeout: patientTimeout})
		others := 0
		for !a.answeredBefore(write.Arrived()) {
			next := proxy.Catch(s.writesStock)
			others++
			err := s.mustBuy(ctx, order{client: fmt.Sprintf("B%d", others), at: s.Survivor})
			write.Release()
			if err != nil {
				next.Release()
				return err
			}
			write = next
		}
		write.Release()
		if err := a.wait(); err != nil {
			return err
		}
		if others > 1 || others == 1 && a.op.Outcome == history.Sold {
			s.Provef("the proxy has held every write of A until another had bought: %d in %.1f s", others,
				time.Since(began).Seconds())
		}
		if a.op.Outcome != history.Sold {
			s.starved(began, others)
		}
		return nil
	},
}

// answeredBefore waits until the request is answered or the event has happened, and reports whether it is answered.
func (p *pending) answeredBefore(event <-chan struct{}) bool {
	select {
	case <-event:
		return false
	case <-p.done:
		return true
	}
}

// pollsInVain is the story of a buyer who polls a lock that others take in turn. A queue lets nobody pass again and
// again, however soon the others return.
var pollsInVain = Scenario{
	Name:    "starvation/polling",
	Title:   "Others take the lock in turn, and each time A asks for it, another one is inside.",
	Applies: only("lock-redis-expiry", "lock-redis-lua", "lock-redis-fenced", "lock-redis-fair", "lock-redis-queue"),
	Claim: func(s scenario.Strategy) Claim {
		if hasQueue(s) {
			return claim("A is served in its turn", report.Safe)
		}
		return claim("A asks again until it gives up", report.Unavailable)
	},
	Deploy: patient("--lease=" + patientTimeout.String()),
	Play: func(ctx context.Context, s *Stage) error {
		if err := s.setManyUnits(ctx); err != nil {
			return err
		}
		// The scripts must be known to Redis: each question is one command.
		if _, err := s.send(ctx, order{client: "Z", at: s.Victim}); err != nil {
			return err
		}
		if hasQueue(s.Strategy) {
			return s.askAmongMany(ctx)
		}
		return s.askInVain(ctx)
	},
}

// hasQueue reports whether those who wait for the lock are served in the order of arrival.
func hasQueue(s scenario.Strategy) bool {
	return s.Name == "lock-redis-fair" || s.Name == "lock-redis-queue"
}

// asksForLock matches a command of the victim about the item's lock. A does not get it, so each one asks for it.
func (s *Stage) asksForLock(m tcpproxy.Message) bool {
	return bytes.Contains(m.Data, []byte(s.lockKey()))
}

// askInVain holds each question of A on the wire until the lock has passed from one holder to the next.
func (s *Stage) askInVain(ctx context.Context) error {
	holder, err := s.enter(ctx, "B1")
	if err != nil {
		return err
	}
	question := s.Victim.Redis.Catch(s.asksForLock)
	began := time.Now()
	a := s.start(ctx, order{client: "A", at: s.Victim, timeout: patientTimeout})
	asked := 0
	for !a.answeredBefore(question.Arrived()) {
		asked++
		next := s.Victim.Redis.Catch(s.asksForLock)
		err := s.release(ctx, holder)
		if err == nil {
			holder, err = s.enter(ctx, fmt.Sprintf("B%d", asked+1))
		}
		question.Release()
		question = next
		if err != nil {
			question.Release()
			return err
		}
	}
	question.Release()
	if err := errors.Join(a.wait(), s.release(ctx, holder)); err != nil {
		return err
	}
	if asked > 1 {
		s.Provef("A asked for the lock %d times in %.1f s; each time it was free meanwhile, and another had it again",
			asked, time.Since(began).Seconds())
	}
	if a.op.Outcome != history.Sold {
		s.starved(began, asked)
	}
	return nil
}

// enter has a client buy at the survivor, and waits until it is parked with the lock.
func (s *Stage) enter(ctx context.Context, client string) (*pending, error) {
	p, parked, err := s.parkAt(ctx, order{client: client, at: s.Survivor, timeout: patientTimeout}, "after-lock")
	if err == nil && !parked {
		err = fmt.Errorf("client %s was answered before it was inside: %s", client, p.op.Error)
	}
	return p, err
}

// askAmongMany has many clients buy at the survivor one time after the other, from when A has asked until it is
// answered.
func (s *Stage) askAmongMany(ctx context.Context) error {
	holder, err := s.enter(ctx, "B1")
	if err != nil {
		return err
	}
	question := s.Victim.Redis.Catch(s.asksForLock)
	a := s.start(ctx, order{client: "A", at: s.Victim, timeout: patientTimeout})
	if err := a.caught(ctx, question); err != nil {
		return err
	}
	question.Release()
	if err := answer(ctx, question); err != nil {
		return err
	}
	s.Stepf("B1 has the lock, and A has asked for it")
	front, err := tcpproxy.Start(s.Survivor.Address())
	if err != nil {
		return err
	}
	defer front.Close()
	others := s.buyAllTheTime(ctx, front, a)
	err = eventually(ctx, "the others have asked", func() (bool, error) { return front.Count() >= crowdUsers, nil })
	if err != nil {
		return err
	}
	began := time.Now()
	if err := errors.Join(s.release(ctx, holder), a.wait()); err != nil {
		return err
	}
	s.blocked = s.between(began, time.Now())
	sales, err := others()
	if err != nil {
		return err
	}
	wanted, before := compareTurns(holder.op, a.op, sales)
	if wanted == 0 {
		return errors.New("nobody but A wanted the lock while B1 had it")
	}
	s.Provef("A had asked while B1 had the lock; %d of %d others wanted it too before B1 left, and sold %d times before A",
		wanted, crowdUsers, before)
	if a.op.Outcome != history.Sold {
		s.starved(began, len(sales))
	}
	return nil
}

// compareTurns counts the sales whose clients wanted the lock before the holder left, and those that were made before
// A's. The times are the replicas'.
func compareTurns(holder, a history.Op, sales []history.Op) (wanted, before int) {
	for _, sale := range sales {
		if sale.EnteredNS-sale.WaitedUS*int64(time.Microsecond) < holder.LeftNS {
			wanted++
		}
		if a.Outcome != history.Sold || sale.EnteredNS < a.EnteredNS {
			before++
		}
	}
	return wanted, before
}

// buyAllTheTime has many clients buy through a proxy, one time after the other, until A is answered. wait waits until
// they have ended, and returns what they have bought.
func (s *Stage) buyAllTheTime(
	ctx context.Context, front *tcpproxy.Proxy, a *pending,
) (wait func() ([]history.Op, error)) {
	var users sync.WaitGroup
	var mu sync.Mutex
	var sales []history.Op
	var failure error
	buy := func(client string) {
		op, err := s.send(ctx, order{client: client, through: "http://" + front.Addr()})
		mu.Lock()
		defer mu.Unlock()
		if op.Outcome == history.Sold {
			sales = append(sales, op)
		}
		failure = errors.Join(failure, err)
	}
	for user := range crowdUsers {
		users.Go(func() {
			for i := 1; !a.answered() && ctx.Err() == nil; i++ {
				buy(fmt.Sprintf("B%d-%d", user+2, i))
			}
		})
	}
	s.inBackground(users.Wait)
	return func() ([]history.Op, error) {
		users.Wait()
		return sales, failure
	}
}

// starved records that A could not buy since then, while others bought.
func (s *Stage) starved(since time.Time, others int) {
	s.blocked, s.never = s.between(since, time.Now()), true
	s.Stepf("A could not buy for %.1f s, in which others bought %d times", s.blocked.Seconds(), others)
}
