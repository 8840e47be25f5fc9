package mutants

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"

	"stock/internal/locks"
	"stock/internal/stock"
)

var oddities = []Mutant{
	{
		Name: "slow", Strategy: "update",
		Planted: "Each deduction and each order takes 5 ms longer.",
		change:  both(slowDeductions(5*time.Millisecond), slowOrders(5*time.Millisecond)),
	},
	{
		Name: "late-answers", Strategy: "redis-script",
		Planted: "1 buyer in 5 is answered 50 ms after the deduction.",
		change:  waitAfter(5, func() time.Duration { return 50 * time.Millisecond }),
	},
	{
		Name: "unordered-answers", Strategy: "batch",
		Planted: "Buyers are answered up to 20 ms after the deduction, in any order.",
		change:  waitAfter(1, func() time.Duration { return rand.N(20 * time.Millisecond) }),
	},
	{
		Name: "slow-replica", Strategy: "optimistic-version",
		Planted: "The second replica takes 10 ms longer.",
		change: func(p *plan) {
			p.deduct = func(next deductFunc) deductFunc {
				return func(ctx context.Context, req stock.Request) (stock.Receipt, error) {
					if p.isSecond() {
						p.strikes.Add(1)
						time.Sleep(10 * time.Millisecond)
					}
					return next(ctx, req)
				}
			}
		},
	},
	{
		Name: "busy", Strategy: "update",
		Planted: "1 buyer in 50 is told busy, and nothing is deducted.",
		change: onDeduction(50, func(context.Context, stock.Request, deductFunc) (stock.Receipt, error) {
			return stock.Receipt{}, fmt.Errorf("%w: planted", stock.ErrBusy)
		}),
	},
	{
		Name: "lock-busy", Strategy: "lock-redis-lua",
		Planted: "1 request in 50 does not get the lock, and is refused.",
		change: onLock(50, func(_ context.Context, key string, _ lockFunc) (*locks.Lease, error) {
			return nil, fmt.Errorf("%w: key %s: %w", locks.ErrNotAcquired, key, locks.ErrLeaseLost)
		}),
	},
	{
		Name: "unknown-sold", Strategy: "update",
		Planted: "1 buyer in 100 gets an error after the deduction.",
		change: onDeduction(100, func(ctx context.Context, req stock.Request, next deductFunc) (stock.Receipt, error) {
			_, err := next(ctx, req)
			return stock.Receipt{}, errors.Join(stock.ErrUnknown, err)
		}),
	},
	{
		Name: "unknown-not-sold", Strategy: "update",
		Planted: "1 buyer in 100 gets an error, and nothing is deducted.",
		change: onDeduction(100, func(context.Context, stock.Request, deductFunc) (stock.Receipt, error) {
			return stock.Receipt{}, stock.ErrUnknown
		}),
	},
	{
		Name: "unknown-with-key", Strategy: "update",
		Planted: "1 buyer in 50 gets an error after the deduction, and the receipt when the request is sent again.",
		change: onDeduction(50, func(ctx context.Context, req stock.Request, next deductFunc) (stock.Receipt, error) {
			receipt, err := next(ctx, req)
			if receipt.Replayed {
				return receipt, err
			}
			return stock.Receipt{}, errors.Join(stock.ErrUnknown, err)
		}),
	},
	{
		Name: "unknown-order", Strategy: "for-update",
		Planted: "1 order in 30 gets an error, every second of them after all its lines were deducted.",
		change:  loseOrders(30),
	},
	{
		Name: "lost-connection", Strategy: "update",
		Planted: "1 UPDATE in 100 is carried out, but its reply does not arrive: the connection to MySQL seems lost.",
		change: onStatement(100, deducts, func(
			ctx context.Context, statement string, args []driver.NamedValue, next executeFunc,
		) (driver.Result, error) {
			if _, err := next(ctx, statement, args); err != nil {
				return nil, err
			}
			return nil, mysql.ErrInvalidConn
		}),
	},
	{
		Name: "busy-in-flight", Strategy: "update",
		Planted: "A request that is sent again while the first one is in flight is told busy.",
		change:  tellRetriesBusy,
	},
	{
		Name: "in-progress-once", Strategy: "update",
		Planted: "A request that is sent again is refused once as in progress.",
		change:  refuseReplayOnce,
	},
	{
		Name: "many-attempts", Strategy: "optimistic-stock",
		Planted: "1 write in 3 fails as if another had been faster.",
		change:  onStatement(3, overwrites, unsent(0)),
	},
	{
		Name: "deadlocks", Strategy: "batch",
		Planted: "1 deduction in 10 is the victim of a deadlock, and tries again.",
		change: onStatement(10, deducts, func(
			context.Context, string, []driver.NamedValue, executeFunc,
		) (driver.Result, error) {
			return nil, &mysql.MySQLError{Number: 1213, Message: "Deadlock found when trying to get lock"}
		}),
	},
	{
		Name: "token-gaps", Strategy: "lock-redis-fenced",
		Planted: "1 request in 5 takes the lock twice, so that tokens are left out.",
		change: onLock(5, func(ctx context.Context, key string, next lockFunc) (*locks.Lease, error) {
			first, err := next(ctx, key)
			if err != nil {
				return nil, err
			}
			if err := first.Unlock(); err != nil {
				return nil, err
			}
			return next(ctx, key)
		}),
	},
	{
		Name: "one-full-slot", Strategy: "slots",
		Planted: "All units are in the first slot.",
		change:  fillFirstSlot,
	},
	{
		Name: "uneven-stream", Strategy: "redis-stream",
		Planted: "The second replica writes its sales to MySQL 50 ms late, after later sales of the first.",
		change: func(p *plan) {
			p.begin = func(options driver.TxOptions) driver.TxOptions {
				if p.isSecond() {
					p.strikes.Add(1)
					time.Sleep(50 * time.Millisecond)
				}
				return options
			}
		},
	},
	{
		Name: "undeleted-entries", Strategy: "redis-stream",
		Planted: "1 deletion of written entries in 4 does nothing, so that they are delivered again.",
		change:  rewriteLua(4, "local deleted = 0", "do return 0 end\nlocal deleted = 0"),
	},
}

// slowDeductions delays every deduction.
func slowDeductions(delay time.Duration) change {
	return onDeduction(1, func(ctx context.Context, req stock.Request, next deductFunc) (stock.Receipt, error) {
		time.Sleep(delay)
		return next(ctx, req)
	})
}

// waitAfter delays the answer of every n-th deduction.
func waitAfter(n int64, delay func() time.Duration) change {
	return onDeduction(n, func(ctx context.Context, req stock.Request, next deductFunc) (stock.Receipt, error) {
		receipt, err := next(ctx, req)
		time.Sleep(delay())
		return receipt, err
	})
}

// slowOrders delays every order.
func slowOrders(delay time.Duration) change {
	return func(p *plan) {
		p.order = func(next orderFunc) orderFunc {
			return func(ctx context.Context, req stock.OrderRequest) (stock.OrderReceipt, error) {
				time.Sleep(delay)
				return next(ctx, req)
			}
		}
	}
}

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

// tellRetriesBusy tells those busy whose first request is still in progress.
func tellRetriesBusy(p *plan) {
	p.deduct = func(next deductFunc) deductFunc {
		return func(ctx context.Context, req stock.Request) (stock.Receipt, error) {
			receipt, err := next(ctx, req)
			if errors.Is(err, stock.ErrInProgress) {
				p.strikes.Add(1)
				err = fmt.Errorf("%w: planted", stock.ErrBusy)
			}
			return receipt, err
		}
	}
}

// refuseReplayOnce refuses the first replay of each key.
func refuseReplayOnce(p *plan) {
	var refused memory[string, bool]
	p.deduct = func(next deductFunc) deductFunc {
		return func(ctx context.Context, req stock.Request) (stock.Receipt, error) {
			receipt, err := next(ctx, req)
			if !receipt.Replayed {
				return receipt, err
			}
			if _, known := refused.swap(req.Key, true); known {
				return receipt, err
			}
			p.strikes.Add(1)
			return stock.Receipt{}, stock.ErrInProgress
		}
	}
}

// fillFirstSlot writes the sum of all slots into the first one.
func fillFirstSlot(p *plan) {
	p.execute = func(next executeFunc) executeFunc {
		return func(ctx context.Context, statement string, args []driver.NamedValue) (driver.Result, error) {
			if strings.HasPrefix(statement, spreads) {
				p.strikes.Add(1)
				args = slices.Clone(args)
				for i := 5; i < len(args); i += 3 {
					units, _ := args[i].Value.(int64)
					add(2, units)(args)
					args[i].Value = int64(0)
				}
			}
			return next(ctx, statement, args)
		}
	}
}
