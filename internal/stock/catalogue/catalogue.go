// Package catalogue lists every strategy and builds them. It is the only package that knows them all.
package catalogue

import (
	"slices"

	"stock/internal/locks"
	"stock/internal/stock"
)

// Strategies is the catalogue. To add a strategy, write a file for it and a row in one of these lists.
var Strategies = slices.Concat(baselines, mysqlStrategies, redisStrategies, lockStrategies)

type newDeducter = func(stock.Deps) stock.Deducter

// on is the row of a strategy that sells from one store.
func on(store stock.Store, name string, constructor newDeducter, claim stock.Claim, summary string) stock.Strategy {
	return stock.Strategy{
		Name: name, Summary: summary, Claim: claim, Stores: []stock.Store{store}, New: constructor,
	}
}

// lock is the row of a strategy that is read-modify-write under a lock.
func lock(
	name string, newLock func(stock.Deps) (locks.Locker, error), claim stock.Claim, summary string, stores ...stock.Store,
) stock.Strategy {
	return stock.Strategy{Name: name, Summary: summary, Claim: claim, Stores: stores, Lock: newLock}
}

// control is a row that is wrong on purpose.
func control(s stock.Strategy) stock.Strategy {
	s.Control = true
	if s.Claim.ClientRetry != stock.RetryRepeatsAnswer {
		s.NoKeys = "it is wrong on purpose, as people write it, without keys"
	}
	return s
}

// needing is a row of a strategy that needs servers beside those of its store.
func needing(s stock.Strategy, needs ...stock.Need) stock.Strategy {
	s.Needs = needs
	return s
}
