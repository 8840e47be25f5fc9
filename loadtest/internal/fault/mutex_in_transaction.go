package fault

import (
	"context"
	"fmt"
	"time"

	"stock/loadtest/internal/history"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/scenario"
)

var mutexScenarios = []Scenario{unlockBeforeCommit}

// unlockBeforeCommit is the story of a mutex that is unlocked inside the transaction. Both clients use the same
// replica, because a mutex excludes nobody else.
var unlockBeforeCommit = Scenario{
	Name:    "unlock-before-commit",
	Title:   "B sends its request to the replica where A has written and has not committed yet.",
	Applies: only("mutex-in-tx", "mutex-around-tx"),
	Claim: func(s scenario.Strategy) Claim {
		if s.Control {
			return claim("loses-updates: B gets the mutex, and reads what was before A's write", report.Unsafe)
		}
		return claim("B waits for the mutex until A has committed", report.Safe)
	},
	Deploy: patient(),
	Play: func(ctx context.Context, s *Stage) error {
		db, err := s.openMySQL(ctx, nil)
		if err != nil {
			return err
		}
		defer db.Close()
		a, _, err := s.parkAtFirst(ctx, order{client: "A", at: s.Victim, timeout: patientTimeout}, "before-commit")
		if err != nil {
			return err
		}
		b := s.start(ctx, order{client: "B", at: s.Victim, count: 2})
		writes, err := s.awaitRowWait(ctx, db, s.Item, b.done)
		switch {
		case err != nil:
			return err
		case writes:
			s.Provef("A is parked before COMMIT, and B's UPDATE waits for A's row (innodb_trx): B has the mutex")
		case b.op.Outcome == history.Busy:
			s.Provef("A is parked before COMMIT, and B was refused because it did not get the mutex within %v", lease)
		case b.op.Outcome == history.Sold:
			s.Failf("B was sold the item while A had not committed")
		default:
			return fmt.Errorf("client B was answered while A had not committed: %s", b.op.Error)
		}
		if err := s.release(ctx, a); err != nil {
			return err
		}
		committed := time.Now()
		if err := b.wait(); err != nil {
			return err
		}
		return s.buy(ctx, order{client: "C", at: s.Victim, count: 3}, committed)
	},
}
