package mutants

import "database/sql/driver"

var batchingBugs = []Mutant{
	{
		Name: "batch-drops-a-member", Strategy: "batch",
		Planted: "1 batch in 20 does not deduct the last unit that it grants.",
		change:  onArgs(20, deducts, addIfSeveral(-1)),
	},
	{
		Name: "batch-counts-twice", Strategy: "batch",
		Planted: "1 batch in 20 deducts one unit twice.",
		change:  onArgs(20, deducts, addIfSeveral(1)),
	},
	{
		Name: "batch-one-too-many", Strategy: "batch",
		Planted: "The condition allows one unit more than there is.",
		change:  rewrite(1, deducts, belowZero, enough, "AND stock + 1 >= ?"),
	},
	{
		Name: "batch-unlocked", Strategy: "batch",
		Planted: "A batch that does not fit as a whole reads the stock without locking the row.",
		change:  rewrite(1, locksRow, ""),
	},
	{
		Name: "redis-script-same-remaining", Strategy: "redis-script",
		Planted: "All members of a call are told what remains after the last one.",
		change: rewriteLua("return reply",
			"for i = 1, #ARGV do if reply[2 * i - 1] == 1 then reply[2 * i] = units end; end\nreturn reply"),
	},
	{
		Name: "redis-script-drops-a-member", Strategy: "redis-script",
		Planted: "A call of several does not deduct one of the units that it grants.",
		change: rewriteLua("redis.call('DECRBY', KEYS[1], taken)",
			"redis.call('DECRBY', KEYS[1], #ARGV > 1 and taken - 1 or taken)"),
	},
	{
		Name: "redis-script-by-number", Strategy: "redis-script",
		Planted: "A call deducts one unit for each member, whatever it asked for.",
		change:  rewriteLua("taken = units - wanted, taken + wanted", "taken = units - wanted, taken + 1"),
	},
}

// addIfSeveral changes the units that a batch deducts if they are more than one.
func addIfSeveral(units int64) func([]driver.NamedValue) {
	return func(args []driver.NamedValue) {
		if asked, ok := args[0].Value.(int64); ok && asked > 1 {
			add(0, units)(args)
		}
	}
}
