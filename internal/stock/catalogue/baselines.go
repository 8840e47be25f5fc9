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
		Claim:   deductingNothing(always(stock.SellsNothing, stock.CrashIsHarmless, stock.LateIsHarmless)),
		Stores:  []stock.Store{stock.NoStore},
		New:     newNoop,
	},
	{
		Name:    "none",
		NoKeys:  asPeopleWriteIt,
		Summary: "SELECT the stock, subtract the count, and UPDATE it, without a lock.",
		Claim:   losesUpdates,
		Control: true,
		Stores:  []stock.Store{stock.MySQL},
		Lock:    newNone,
	},
	{
		Name:    "decrement",
		NoKeys:  asPeopleWriteIt,
		Summary: "UPDATE stock = stock - count, without the condition that there is enough.",
		Claim:   always(stock.Oversells, stock.CrashIsHarmless, stock.LateIsHarmless),
		Control: true,
		Stores:  []stock.Store{stock.MySQL},
		New:     mysql.NewDecrement,
	},
	{
		Name:    "mutex",
		Summary: "One mutex per item in the process.",
		Claim:   mutexOfOneReplica,
		Stores:  []stock.Store{stock.MySQL},
		Lock:    func(stock.Deps) (locks.Locker, error) { return new(locks.Mutex), nil },
	},
	{
		Name:    "mutex-per-request",
		NoKeys:  asPeopleWriteIt,
		Summary: "Every request locks a mutex of its own.",
		Claim:   losesUpdates,
		Control: true,
		Stores:  []stock.Store{stock.MySQL},
		Lock:    func(stock.Deps) (locks.Locker, error) { return guard.MutexPerRequest{}, nil },
	},
	{
		Name:    "mutex-in-tx",
		NoKeys:  asPeopleWriteIt,
		Summary: "A mutex inside the transaction: it is unlocked before COMMIT.",
		Claim:   losesUpdates,
		Control: true,
		Stores:  []stock.Store{stock.MySQL},
		New:     guard.NewMutexInTx,
	},
	{
		Name:    "mutex-around-tx",
		Summary: "As mutex-in-tx, with the mutex around the transaction: it is unlocked after COMMIT.",
		Claim:   onCrash(mutexOfOneReplica, stock.CrashRollsBack),
		Stores:  []stock.Store{stock.MySQL},
		New:     guard.NewMutexAroundTx,
	},
}

func newNone(stock.Deps) (locks.Locker, error) { return locks.None{}, nil }

// deductingNothing is the claim of a strategy for which a request that is sent again makes no difference.
func deductingNothing(c stock.Claim) stock.Claim {
	c.ClientRetry = stock.RetryIsHarmless
	return c
}
