package mutants

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"

	"stock/internal/locks"
	"stock/internal/stock"
)

var oddities = []Mutant{
	mutant("slow", "update", "Each deduction and each order takes 5 ms longer.",
		both(
			onAnswer(1, anyAnswer, wait(func() time.Duration { return 5 * time.Millisecond })),
			onOrderAnswer(1, isAnyOrder, func(*orderAnswer) { time.Sleep(5 * time.Millisecond) }))),
	mutant("late-answers", "redis-script", "1 buyer in 5 is answered 50 ms after the deduction.",
		onAnswer(5, anyAnswer, wait(func() time.Duration { return 50 * time.Millisecond }))),
	mutant("unordered-answers", "batch", "Buyers are answered up to 20 ms after the deduction, in any order.",
		onAnswer(1, anyAnswer, wait(func() time.Duration { return rand.N(20 * time.Millisecond) }))),
	mutant("slow-replica", "optimistic-version", "The second replica takes 10 ms longer.",
		func(p *plan) {
			p.deduct = func(ctx context.Context, req stock.Request, next deductFunc) (stock.Receipt, error) {
				if p.isSecond() {
					p.strikes.Add(1)
					time.Sleep(10 * time.Millisecond)
				}
				return next(ctx, req)
			}
		}),
	mutant("busy", "update", "1 buyer in 50 is told busy, and nothing is deducted.",
		onDeduction(50, func(context.Context, stock.Request, deductFunc) (stock.Receipt, error) {
			return stock.Receipt{}, errPlanted
		})),
	mutant("lock-busy", "lock-redis-lua", "1 request in 50 does not get the lock, and is refused.",
		onLock(50, func(_ context.Context, key string, _ lockFunc) (*locks.Lease, error) {
			return nil, fmt.Errorf("%w: key %s: %w", locks.ErrNotAcquired, key, locks.ErrLeaseLost)
		})),
	mutant("unknown-sold", "update", "1 buyer in 100 gets an error after the deduction.",
		onAnswer(100, anyAnswer, func(a *answer) { a.fail(errors.Join(stock.ErrUnknown, a.err)) })),
	mutant("unknown-not-sold", "update", "1 buyer in 100 gets an error, and nothing is deducted.",
		onDeduction(100, func(context.Context, stock.Request, deductFunc) (stock.Receipt, error) {
			return stock.Receipt{}, stock.ErrUnknown
		})),
	mutant("unknown-with-key", "update",
		"1 buyer in 50 gets an error after the deduction, and the receipt when the request is sent again.",
		onAnswer(50, func(a *answer) bool { return !a.receipt.Replayed },
			func(a *answer) { a.fail(errors.Join(stock.ErrUnknown, a.err)) })),
	mutant("unknown-order", "for-update",
		"1 order in 30 gets an error, every second of them after all its lines were deducted.",
		loseOrders(30)),
	mutant("lost-connection", "update",
		"1 UPDATE in 100 is carried out, but its reply does not arrive: the connection to MySQL seems lost.",
		instead(100, deducts, func(s *statement) (driver.Result, error) {
			if _, err := s.result(); err != nil {
				return nil, err
			}
			return nil, mysql.ErrInvalidConn
		})),
	mutant("busy-in-flight", "update",
		"A request that is sent again to the same replica while the first one is in flight is told busy.",
		refuseInFlight),
	mutant("in-progress-once", "update", "1 request in 10 that is sent again is refused once as in progress.",
		refuseReplayOnce),
	mutant("many-attempts", "optimistic-stock", "1 write in 3 fails as if another had been faster.",
		instead(3, overwrites, unsent(0))),
	mutant("deadlocks", "batch", "1 deduction in 10 is the victim of a deadlock, and tries again.",
		instead(10, deducts, func(*statement) (driver.Result, error) {
			return nil, &mysql.MySQLError{Number: deadlock, Message: "Deadlock found when trying to get lock"}
		})),
	mutant("token-gaps", "lock-redis-fenced", "1 request in 5 takes the lock twice, so that tokens are left out.",
		onLock(5, func(ctx context.Context, key string, next lockFunc) (*locks.Lease, error) {
			first, err := next(ctx, key)
			if err != nil {
				return nil, err
			}
			if err := first.Unlock(); err != nil {
				return nil, err
			}
			return next(ctx, key)
		})),
	mutant("one-full-slot", "slots", "All units are in the first slot.",
		onEvery(1, spreads, fillFirstSlot)),
	mutant("uneven-stream", "redis-stream",
		"The second replica writes its sales to MySQL 50 ms late, after later sales of the first.",
		func(p *plan) {
			p.begin = func(options driver.TxOptions) driver.TxOptions {
				if p.isSecond() {
					p.strikes.Add(1)
					time.Sleep(50 * time.Millisecond)
				}
				return options
			}
		}),
	mutant("undeleted-entries", "redis-stream",
		"1 deletion of written entries in 4 does nothing, so that they are delivered again.",
		rewriteLua(4, "local deleted = 0", "do return 0 end\nlocal deleted = 0")),
}

func anyAnswer(*answer) bool       { return true }
func isAnyOrder(*orderAnswer) bool { return true }

// loseOrders answers every n-th order with an error. It carries out every second of them.
func loseOrders(n int64) change {
	var lost atomic.Int64
	return onOrder(n, func(ctx context.Context, req stock.OrderRequest, next orderFunc) (stock.OrderReceipt, error) {
		if lost.Add(1)%2 == 0 {
			return stock.OrderReceipt{}, stock.ErrUnknown
		}
		_, err := next(ctx, req)
		return stock.OrderReceipt{}, errors.Join(stock.ErrUnknown, err)
	})
}

// refuseInFlight refuses requests with the key of one that is in flight.
func refuseInFlight(p *plan) {
	var inFlight sync.Map // by key
	p.deduct = func(ctx context.Context, req stock.Request, next deductFunc) (stock.Receipt, error) {
		if req.Key == "" {
			return next(ctx, req)
		}
		if _, known := inFlight.LoadOrStore(req.Key, nil); known {
			p.strikes.Add(1)
			return stock.Receipt{}, errPlanted
		}
		defer inFlight.Delete(req.Key)
		return next(ctx, req)
	}
}

// refuseReplayOnce refuses the first replay of every tenth key.
func refuseReplayOnce(p *plan) {
	var refused sync.Map // by key
	isFirst := func(a *answer) bool {
		if !a.receipt.Replayed {
			return false
		}
		_, known := refused.Swap(a.req.Key, true)
		return !known
	}
	onAnswer(10, isFirst, tell(stock.ErrInProgress))(p)
}

// fillFirstSlot writes the sum of all slots into the first one.
func fillFirstSlot(s *statement) {
	for i := 5; i < len(s.args); i += 3 {
		units, _ := s.args[i].Value.(int64)
		s.add(2, units)
		s.set(i, int64(0))
	}
}
