package fault

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"stock/internal/tcpproxy"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/oracle"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/scenario"
	"stock/loadtest/internal/topology"
	"stock/loadtest/internal/traffic"
)

// commitScenarios are about a sale whose last step fails, or whose last reply is lost.
var commitScenarios = []Scenario{
	batchUnknown("before", tcpproxy.BeforeRequest),
	batchUnknown("after", tcpproxy.BeforeReply),
	confirmationUnknown("before", tcpproxy.BeforeRequest),
	confirmationUnknown("after", tcpproxy.BeforeReply),
	reservationUnknown("before", tcpproxy.BeforeRequest),
	reservationUnknown("after", tcpproxy.BeforeReply),
	{
		Name:    "second-store/unknown",
		Title:   "The connection to MySQL is cut after it has deducted what was sold in Redis.",
		Applies: writesThrough,
		Claim:   keepsInStep,
		Play: func(ctx context.Context, s *Stage) error {
			if err := s.cutSale(ctx, s.decides(), tcpproxy.BeforeReply); err != nil {
				return err
			}
			return s.buy(ctx, order{client: "B", at: s.Survivor, count: 2}, time.Now())
		},
	},
	{
		Name:    "second-store/refuses",
		Title:   "MySQL refuses to deduct what was sold in Redis, because another transaction has locked the row.",
		Applies: writesThrough,
		Claim:   keepsInStep,
		Play:    playRefusedByMySQL,
	},
}

// writesThrough applies to strategies that deduct in MySQL after Redis, before the buyer is answered.
func writesThrough(s scenario.Strategy) string {
	if !s.WriteThrough {
		return "it does not deduct in two stores"
	}
	return ""
}

func keepsInStep(scenario.Strategy) Claim {
	return claim("gives units back to Redis if MySQL refuses them, and not if it may have deducted them", report.Safe)
}

// playRefusedByMySQL keeps the row of the item locked until A is refused.
func playRefusedByMySQL(ctx context.Context, s *Stage) error {
	db, err := s.openMySQL(ctx, nil)
	if err != nil {
		return err
	}
	defer db.Close()
	err = s.inTransaction(ctx, db, sql.LevelDefault, func(tx transaction) error {
		if _, err := tx.readForUpdate(ctx); err != nil {
			return err
		}
		a := s.start(ctx, order{client: "A", at: s.Victim})
		waits, err := s.awaitRowWait(ctx, db, s.Item, a.done)
		if err := errors.Join(err, a.wait()); err != nil {
			return err
		}
		if waits && a.op.Outcome == history.Busy {
			s.Provef("A waited for the row, which another transaction has locked (innodb_trx), and was refused")
		}
		return nil
	})
	if err != nil {
		return err
	}
	return s.buy(ctx, order{client: "B", at: s.Survivor, count: 2}, time.Now())
}

// cutSale has A buy, and cuts the connection to MySQL at a message of the sale.
func (s *Stage) cutSale(ctx context.Context, match func(tcpproxy.Message) bool, at tcpproxy.CutPoint) error {
	message := s.Victim.MySQL.Catch(match)
	defer message.Release()
	a := s.start(ctx, order{client: "A", at: s.Victim})
	if err := a.caught(ctx, message); err != nil {
		return err
	}
	message.Cut(at)
	if err := a.wait(); err != nil {
		return err
	}
	stock, err := s.Oracle.Stock(ctx, oracle.MySQL, []int64{s.Item})
	if err == nil {
		s.Provef("the proxy cut the connection %s of the last step of A's sale, a message of %d bytes; MySQL has %d units",
			at, message.Bytes(), stock[s.Item])
	}
	return err
}

// confirmationUnknown is the story of a sale of which MySQL has held the units, and that loses its connection around
// the confirmation.
func confirmationUnknown(variant string, at tcpproxy.CutPoint) Scenario {
	return Scenario{
		Name:    "confirmation-unknown/" + variant,
		Title:   "The connection to MySQL is cut " + variant + " MySQL has confirmed the reservation of a sale.",
		Applies: takesReservations,
		Claim: func(scenario.Strategy) Claim {
			return claim("finds out whether the reservation is confirmed, and cancels it if not", report.Safe)
		},
		Play: func(ctx context.Context, s *Stage) error {
			if err := s.cutSale(ctx, s.completes(), at); err != nil {
				return err
			}
			return s.buy(ctx, order{client: "B", at: s.Survivor, count: 2}, time.Now())
		},
	}
}

// reservationUnknown is the same for a client that holds a unit and then confirms it.
func reservationUnknown(variant string, at tcpproxy.CutPoint) Scenario {
	return Scenario{
		Name: "reservation-unknown/" + variant,
		Title: "The connection to MySQL is cut " + variant +
			" MySQL has confirmed a reservation, and the client confirms it again.",
		Applies: takesReservations,
		Claim: func(scenario.Strategy) Claim {
			return claim("says that the outcome is unknown, and confirms once", report.Safe)
		},
		Play: func(ctx context.Context, s *Stage) error {
			s.run.CallsVersion = history.CallsVersion
			held, err := s.hold(ctx, s.Victim)
			if err != nil {
				return err
			}
			confirms := s.Victim.MySQL.Catch(s.completes())
			defer confirms.Release()
			confirm := traffic.About(held, history.Confirm, false)
			over := make(chan error, 1)
			s.inBackground(func() { over <- s.call(ctx, s.Victim, &confirm) })
			if err := arrive(ctx, confirms); err != nil {
				return err
			}
			confirms.Cut(at)
			if err := <-over; err != nil {
				return err
			}
			inspect, again := traffic.About(held, history.Inspect, false), traffic.About(held, history.Confirm, true)
			if err := errors.Join(s.call(ctx, s.Survivor, &inspect), s.call(ctx, s.Survivor, &again)); err != nil {
				return err
			}
			s.Provef("the proxy cut the connection %s of the confirmation, of %d bytes; then the reservation is %s", at,
				confirms.Bytes(), inspect.State)
			return nil
		},
	}
}

// call sends a request about a reservation to a replica, and records it with its answer.
func (s *Stage) call(ctx context.Context, at *topology.Isolated, c *history.Call) (err error) {
	load := traffic.Load{Strategy: s.Strategy.Name, Store: s.Store, Timeout: clientTimeout}
	if *c, err = traffic.CallOne(ctx, at.URL, load, *c); err != nil {
		return err
	}
	s.mu.Lock()
	s.calls = append(s.calls, *c)
	s.mu.Unlock()
	s.Stepf("A is answered to its %s: %s %s%s", c.Kind, c.Outcome, c.State, c.Error)
	return nil
}

// batchSize is how many requests are to share a commit.
const batchSize = 3

// gathering is how long requests have to arrive in the queue of their replica, which nobody can see from outside. That
// they did is proved by what became of them.
const gathering = 300 * time.Millisecond

// batchUnknown is the story of a connection that breaks around the commit of several requests. They are in one batch
// because they have waited for the one before.
func batchUnknown(variant string, at tcpproxy.CutPoint) Scenario {
	return Scenario{
		Name:    "batch-unknown/" + variant,
		Title:   "The connection to the store is cut " + variant + " the store has committed several requests together.",
		Applies: only("batch", "batch-ledger", "escrow", "redis-script"),
		Claim: func(scenario.Strategy) Claim {
			return claim("tells each of them that the outcome is unknown", report.Safe)
		},
		Play: func(ctx context.Context, s *Stage) error {
			proxy := s.storeProxy(s.Victim)
			before := proxy.Catch(s.decides())
			defer before.Release()
			a := s.start(ctx, order{client: "A", at: s.Victim})
			if err := a.caught(ctx, before); err != nil {
				return err
			}
			var members []*pending
			for i := range batchSize {
				members = append(members, s.start(ctx, order{client: fmt.Sprintf("B%d", i+1), at: s.Victim}))
			}
			time.Sleep(gathering)
			commit := proxy.Catch(s.commitsBatch())
			defer commit.Release()
			before.Release()
			if err := errors.Join(a.wait(), arrive(ctx, commit)); err != nil {
				return err
			}
			commit.Cut(at)
			unknown := 0
			for _, b := range members {
				if err := b.wait(); err != nil {
					return err
				}
				if b.op.Outcome == history.Unknown {
					unknown++
				}
			}
			if unknown > 1 {
				s.Provef("%d requests have an unknown outcome, because one connection was cut at a message of %d bytes",
					unknown, commit.Bytes())
			}
			return s.buy(ctx, order{client: "C", at: s.Survivor}, time.Now())
		},
	}
}

// commitsBatch matches the message that makes a batch durable. escrow first tries the row of its replica, which has one
// unit at most, and so too few.
func (s *Stage) commitsBatch() func(tcpproxy.Message) bool {
	decides := s.decides()
	if s.Store != oracle.Slots {
		return decides
	}
	return func(m tcpproxy.Message) bool { return decides(m) && bytes.HasSuffix(m.Data, []byte("COMMIT")) }
}
