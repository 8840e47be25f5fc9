package fault

import (
	"context"
	"fmt"
	"time"

	"stock/loadtest/internal/history"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/scenario"
)

// renewed are the locks whose lease is renewed while they are held, or that have no lease.
var renewed = append([]string{
	"lock-redis-multi", "lock-mysql-getlock", "lock-etcd", "lock-zookeeper", "lock-multi",
}, renewedInRedis...)

// workLease lets a renewal come two seconds late on a busy machine.
const workLease = 3 * time.Second

// longWork is the story of a holder that works for longer than its lease.
var longWork = Scenario{
	Name:    "long-work",
	Title:   "The holder works for three leases, and meanwhile another replica asks for the lock again and again.",
	Applies: only(renewed...),
	Claim: func(scenario.Strategy) Claim {
		return claim("stays the holder for as long as it works", report.Safe)
	},
	Deploy: patient("--lease="+workLease.String(), "--lock-wait="+workLease.String()),
	Play: func(ctx context.Context, s *Stage) error {
		a, point, err := s.parkAtFirst(ctx, order{client: "A", at: s.Victim, timeout: patientTimeout}, "before-write")
		if err != nil {
			return err
		}
		asked := 0
		for entered := time.Now(); s.between(entered, time.Now()) < 3*workLease; asked++ {
			b, err := s.send(ctx, order{client: fmt.Sprintf("B%d", asked), at: s.Survivor, count: 2})
			switch {
			case err != nil:
				return err
			case b.Outcome == history.Sold:
				s.Failf("B was granted the lock while A, who had it, was inside")
				return s.resume(ctx, a)
			}
		}
		s.Provef("A was at %s for three leases of %v, and B was refused %d times meanwhile", point, workLease, asked)
		if err := s.resume(ctx, a); err != nil {
			return err
		}
		if a.op.Outcome != history.Sold {
			s.Failf("A has lost its lock while it worked: %s", a.op.Error)
		}
		return s.buy(ctx, order{client: "C", at: s.Survivor, count: 3}, time.Now())
	},
}
