// Package catalogue lists every strategy and builds them. It is the only package that knows them all.
package catalogue

import "slices"

// Strategies is the catalogue. To add a strategy, write a file for it and a row in one of these lists.
var Strategies = slices.Concat(baselines, mysqlStrategies, redisStrategies, lockStrategies)
