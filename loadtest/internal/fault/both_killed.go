package fault

import (
	"context"
	"time"

	"stock/internal/monotonic"
	"stock/internal/servers"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/scenario"
)

// bothKilled is the story of a replica and a MySQL that are killed while many clients buy. It asks whether a dead
// replica keeps units that are still for sale.
var bothKilled = Scenario{
	Name: "replica-and-database-killed",
	Title: "While clients buy, a replica is killed, and then MySQL; the survivor sells all that is left in one request " +
		"(SIGKILL).",
	Applies: only("update", "ledger", "slots", "escrow", "batch", "batch-ledger"),
	Claim: func(scenario.Strategy) Claim {
		return claim("a confirmed sale is on disk, and every other unit is for sale", report.Safe)
	},
	Deploy: func(ctx context.Context, l *Lab) (*Deployment, error) {
		d, err := onOwnMySQL(ctx, l, servers.MySQLOptions{}) // durable
		if err != nil {
			return nil, err
		}
		return d.behindNginx(ctx)
	},
	Play: playBothKilled,
}

func playBothKilled(ctx context.Context, s *Stage) error {
	if err := s.setManyUnits(ctx); err != nil {
		return err
	}
	c := &crowd{stage: s, sales: map[string]int{}}
	if err := c.buy(ctx, c.bothSell); err != nil {
		return err
	}
	earlier := c.asked.Load()
	over := make(chan error, 1)
	s.inBackground(func() { over <- c.buy(ctx, c.survivorSells) })
	err := eventually(ctx, "all users buy", func() (bool, error) { return c.asked.Load() >= earlier+crowdUsers, nil })
	if err != nil {
		return err
	}
	err = s.Together(ctx, "the victim is killed", func(context.Context) error { return s.Victim.Kill() })
	if err != nil {
		return err
	}
	if err := s.Together(ctx, "MySQL is killed and started again", s.MySQL.Restart); err != nil {
		return err
	}
	started := time.Now()
	c.killedNS.Store(monotonic.Now()) // the crowd leaves when the survivor has sold enough since then
	if err := <-over; err != nil {
		return err
	}
	c.record()
	if c.since < crowdSales {
		s.giveUp(started)
		return nil
	}
	stock, err := s.Oracle.Stock(ctx, s.Store, []int64{s.Item})
	if err != nil {
		return err
	}
	s.Provef("before both were killed, the victim had sold %d times; the survivor has sold %d times, %d of them since "+
		"MySQL was started again; %d units are left", c.sales["victim"], c.sales["survivor"], c.since, stock[s.Item])
	return s.buy(ctx, order{client: "D", at: s.Survivor, count: stock[s.Item]}, time.Now())
}
