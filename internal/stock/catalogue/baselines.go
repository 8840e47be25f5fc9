package catalogue

import (
	"stock/internal/locks"
	"stock/internal/stock"
	"stock/internal/stock/guard"
	"stock/internal/stock/mysql"
)

// baselines are what people write first, and the cost of a request without a store.
var baselines = []stock.Strategy{
	{
		Name:    "noop",
		NoKeys:  "it deducts nothing",
		Summary: "Confirms and deducts nothing: the cost of a request when the store costs nothing.",
		Claim: but(always(stock.SellsNothing, stock.CrashIsHarmless, stock.LateIsHarmless), func(c *stock.Claim) {
			c.ClientRetry = stock.RetryIsHarmless
		}),
		Stores: []stock.Store{stock.NoStore},
		New:    newNoop,
	},
	control(lock("none", newNone, losesUpdates,
		"SELECT the stock, subtract the count, and UPDATE it, without a lock.", stock.MySQL)),
	control(on(stock.MySQL, "decrement", mysql.NewDecrement,
		always(stock.Oversells, stock.CrashIsHarmless, stock.LateIsHarmless),
		"UPDATE stock = stock - count, without the condition that there is enough.")),
	lock("mutex", func(stock.Deps) (locks.Locker, error) { return new(locks.Mutex), nil }, mutexOfOneReplica,
		"One mutex per item in the process.", stock.MySQL),
	control(lock("mutex-per-request", func(stock.Deps) (locks.Locker, error) { return guard.MutexPerRequest{}, nil },
		losesUpdates, "Every request locks a mutex of its own.", stock.MySQL)),
	control(on(stock.MySQL, "mutex-in-tx", guard.NewMutexInTx, losesUpdates,
		"A mutex inside the transaction: it is unlocked before COMMIT.")),
	on(stock.MySQL, "mutex-around-tx", guard.NewMutexAroundTx,
		but(mutexOfOneReplica, func(c *stock.Claim) { c.HolderCrash = stock.CrashRollsBack }),
		"As mutex-in-tx, with the mutex around the transaction: it is unlocked after COMMIT."),
}

func newNone(stock.Deps) (locks.Locker, error) { return locks.None{}, nil }
