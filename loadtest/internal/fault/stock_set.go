package fault

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/internal/tcpproxy"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/oracle"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/scenario"
)

// streamScenarios are about sales that reach MySQL after their buyers were answered.
var streamScenarios = []Scenario{{
	Name: "entry-delivered-twice",
	Title: "A replica is killed when MySQL has committed a sale from the stream, before its entry is deleted (SIGKILL). " +
		"The entry is delivered again.",
	Applies: writesBehind,
	Claim: func(scenario.Strategy) Claim {
		return claim("finds in MySQL that the sale was written", report.Safe)
	},
	Play: func(ctx context.Context, s *Stage) error {
		side := s.openRedis()
		defer side.Close()
		removal := s.Victim.Redis.Catch(s.removesEntry)
		defer removal.Release()
		if err := s.mustBuy(ctx, order{client: "A", at: s.Victim}); err != nil {
			return err
		}
		if err := arrive(ctx, removal); err != nil {
			return err
		}
		err := s.Together(ctx, "the victim is killed", func(context.Context) error { return s.Victim.Kill() })
		if err != nil {
			return err
		}
		removal.Cut(tcpproxy.BeforeRequest)
		stock, err := s.Oracle.Stock(ctx, oracle.MySQL, []int64{s.Item})
		if err != nil {
			return err
		}
		entries, err := side.XLen(ctx, s.streamKey()).Result()
		if err != nil {
			return err
		}
		if stock[s.Item] == units-1 && entries == 1 {
			s.Provef("MySQL has %d units, and the entry of A's sale is still in the stream", stock[s.Item])
		}
		return errors.Join(s.buy(ctx, order{client: "B", at: s.Survivor, count: 2}, time.Now()), s.drained(ctx, side))
	},
}}

// writesBehind applies to strategies that update MySQL after the sale.
func writesBehind(s scenario.Strategy) string {
	if !s.WriteBehind {
		return "it has no sales on their way to MySQL"
	}
	return ""
}

// streamKey is the stream of the item's sales.
func (s *Stage) streamKey() string {
	return fmt.Sprintf("%sstock:{%d}:sales", s.Addresses.KeyPrefix, s.Item)
}

// removesEntry matches the script that deletes entries from the item's stream: no other has the stream as its only key.
func (s *Stage) removesEntry(m tcpproxy.Message) bool {
	key := append(argument("1"), argument(s.streamKey())[2:]...)
	return bytes.Contains(m.Data, key) && bytes.Contains(bytes.ToLower(m.Data), argument("evalsha"))
}

// drained waits until every entry of the item's stream was written and deleted.
func (s *Stage) drained(ctx context.Context, side *redis.Client) error {
	return eventually(ctx, "the stream is empty", func() (bool, error) {
		entries, err := side.XLen(ctx, s.streamKey()).Result()
		return entries == 0, err
	})
}

// stockSetScenarios are about a stock that is set while something of the stock before is not done. Nobody asks what
// became of that: the judge sees the new stock only.
var stockSetScenarios = []Scenario{{
	Name:    "stock-is-set/entry",
	Title:   "The stock is set while a sale of the stock before is on its way from the stream to MySQL.",
	Applies: writesBehind,
	Claim: func(scenario.Strategy) Claim {
		return claim("does not deduct sales of an older stock", report.Safe)
	},
	Play: func(ctx context.Context, s *Stage) error {
		side := s.openRedis()
		defer side.Close()
		record := s.Victim.MySQL.Catch(func(m tcpproxy.Message) bool {
			return s.mentionsItem(m) && bytes.Contains(m.Data, []byte("FOR UPDATE"))
		})
		defer record.Release()
		if err := s.mustBuy(ctx, order{client: "Z", at: s.Victim, before: true}); err != nil {
			return err
		}
		if err := arrive(ctx, record); err != nil {
			return err
		}
		if err := s.setAnew(ctx); err != nil {
			return err
		}
		s.Provef("the stock was set while the proxy held the message of %d bytes that begins to write Z's sale",
			record.Bytes())
		record.Release()
		return errors.Join(s.buy(ctx, order{client: "A", at: s.Survivor, count: 2}, time.Now()), s.drained(ctx, side))
	},
}, {
	Name:    "stock-is-set/hold",
	Title:   "The stock is set while units of the stock before are held, which are given back then.",
	Applies: takesReservations,
	Claim: func(scenario.Strategy) Claim {
		return claim("does not give units back to a later stock", report.Safe)
	},
	Play: func(ctx context.Context, s *Stage) error {
		confirms := s.Victim.MySQL.Catch(s.completes())
		defer confirms.Release()
		z := s.start(ctx, order{client: "Z", at: s.Victim, before: true})
		if err := z.caught(ctx, confirms); err != nil {
			return err
		}
		if err := s.setAnew(ctx); err != nil {
			return err
		}
		confirms.Cut(tcpproxy.BeforeRequest)
		if err := z.wait(); err != nil {
			return err
		}
		if z.op.Outcome == history.Busy {
			s.Provef("Z's unit was held when the stock was set, and was not confirmed: %s", z.op.Error)
		}
		return s.buy(ctx, order{client: "A", at: s.Survivor, count: 2}, time.Now())
	},
}, {
	Name:  "stock-is-set/limit",
	Title: "The stock is set after a buyer has bought as much as the limit allows, and the buyer comes again.",
	Applies: func(s scenario.Strategy) string {
		if s.Claim.BuyerLimit == "" {
			return "it takes no limit per buyer"
		}
		return ""
	},
	Claim: func(scenario.Strategy) Claim {
		return claim("a limit counts what was bought of the present stock", report.Safe)
	},
	Play: func(ctx context.Context, s *Stage) error {
		z := order{client: "Z", at: s.Victim, count: 2, limit: 2, before: true}
		if err := s.mustBuy(ctx, z); err != nil {
			return err
		}
		if err := s.setAnew(ctx); err != nil {
			return err
		}
		z.at, z.before = s.Survivor, false
		op, err := s.send(ctx, z)
		if err == nil && (op.Outcome == history.Sold || op.Outcome == history.BuyerLimit) {
			s.Provef("the buyer had %d units of the stock before, which is the limit", z.count)
		}
		return err
	},
}}

// setAnew sets the item's stock again. What was sold before is not part of the history.
func (s *Stage) setAnew(ctx context.Context) error {
	if err := s.setStock(ctx, units, s.Item); err != nil {
		return err
	}
	s.Stepf("the stock is set to %d again", units)
	s.booked.Store(true)
	return s.addStock(ctx, s.Item)
}
