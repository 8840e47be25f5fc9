package mutants

import (
	"context"
	"database/sql/driver"
	"time"

	"stock/internal/stock"
)

// evidenceBugs leave evidence that is easily lost: a story cannot go on after them, most requests are refused, or a
// clock seems to be wrong.
var evidenceBugs = []Mutant{
	mutant("lock-redis-watchdog-renews-nothing", "lock-redis-watchdog",
		"A renewal answers that it was done, and does not start the lease anew.",
		rewriteLua(1, "return redis.call('PEXPIRE', KEYS[1], ARGV[2])", "return 1"), inStory("long-work")),
	mutant("lock-redis-fenced-renews-nothing", "lock-redis-fenced",
		"A renewal answers that it was done, and does not start the lease anew.",
		rewriteLua(1, "return redis.call('PEXPIRE', KEYS[1], ARGV[2])", "return 1"), inStory("long-work")),
	mutant("lock-redis-queue-same-token", "lock-redis-queue",
		"Every turn has the same token, so that the fence refuses nearly everybody.",
		rewriteLua(1, "last = math.max(last + block, micros)", "last = 1")),
	mutant("update-busy", "update", "Only 1 buyer in 20 is served, and the others are told busy.",
		func(p *plan) {
			served := p.every(20)
			p.deduct = func(ctx context.Context, req stock.Request, next deductFunc) (stock.Receipt, error) {
				if served() {
					return next(ctx, req)
				}
				return stock.Receipt{}, errPlanted
			}
		}),
	mutant("for-update-ignores-a-failure", "for-update", "A sale whose COMMIT fails is confirmed.",
		func(p *plan) {
			p.commit = func(tx driver.Tx) error {
				_ = tx.Commit()
				return nil
			}
		}, inStory("commit-unknown/before")),
	mutant("ledger-failure-as-busy", "update", "A buyer is told busy if the connection is lost after the sale.",
		onAnswer(1, failedWith(stock.ErrUnknown), tell(stock.ErrBusy)), inStory("commit-unknown/after")),
	mutant("ledger-keyless-as-busy", "update",
		"Requests are deducted without their keys, and their buyers are told busy.",
		onDeduction(1, func(ctx context.Context, req stock.Request, next deductFunc) (stock.Receipt, error) {
			req.Key = ""
			if _, err := next(ctx, req); err != nil {
				return stock.Receipt{}, err
			}
			return stock.Receipt{}, stock.ErrBusy
		}), inStory("proxy-resends/non-idempotent")),
	mutant("lock-redis-queue-leaves-anothers", "lock-redis-queue",
		"An owner that leaves deletes the lock, even if it is another's.",
		rewriteLua(1, "if ours then", "if true then", "last = math.max(last, token)",
			"last = math.max(last, token or 0)"), inStory("deletes-anothers-lock")),
	mutant("for-update-hides-overlaps", "for-update",
		"1 transaction in 10 is committed 5 ms before its end, and 1 receipt in 20 has times 100 ms too early.",
		hideOverlaps),
}

// hideOverlaps lets others into the critical section when its holder has written. Orders of several items are left
// alone: they would be torn apart.
func hideOverlaps(p *plan) {
	tenth, twentieth := p.every(10), p.every(20)
	p.deduct = func(ctx context.Context, req stock.Request, next deductFunc) (stock.Receipt, error) {
		receipt, err := next(marked(ctx), req)
		if err == nil && twentieth() {
			const early = int64(100 * time.Millisecond)
			receipt.Entered, receipt.Left = receipt.Entered-early, receipt.Left-early
		}
		return receipt, err
	}
	p.execute = func(s *statement) (driver.Result, error) {
		result, err := s.result()
		if err == nil && isMarked(s.ctx) && s.contains(overwrites) && tenth() {
			_, err = s.also("COMMIT", nil)
			time.Sleep(5 * time.Millisecond)
		}
		return result, err
	}
}
