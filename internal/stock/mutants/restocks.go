package mutants

var restockBugs = []Mutant{
	{
		Name: "mysql-restock-twice", Strategy: "update",
		Planted: "1 restock in 5 adds its units twice.",
		change:  rewrite(5, restocks, "CAST(LAST_INSERT_ID(stock + 2 * ?) AS SIGNED), version = version + 1"),
	},
	{
		Name: "mysql-restock-unversioned", Strategy: "optimistic-version",
		Planted: "A restock does not increment the version, so a sale can overwrite it.",
		change:  rewrite(1, restocks, "CAST(LAST_INSERT_ID(stock + ?) AS SIGNED)"),
	},
	{
		Name: "mysql-restock-unnoticed", Strategy: "lock-redis-fenced",
		Planted: "The fence checks the token alone, so a holder that has read the stock before can overwrite a restock.",
		change:  rewrite(1, fences, fencesTokens),
	},
	{
		Name: "redis-restock-nothing", Strategy: "redis-script",
		Planted: "1 restock in 2 is confirmed and not made.",
		change:  rewriteLua(2, "return redis.call('INCRBY', KEYS[1], ARGV[1])", "return units + ARGV[1]"),
	},
	{
		Name: "redis-stream-restock-without-units", Strategy: "redis-stream",
		Planted: "The entry of a restock has no units, so MySQL does not get them.",
		change:  rewriteLua(1, "'units', '-' .. ARGV[1]", "'units', '0'"),
	},
}

// restocks is in the UPDATE that adds units.
const restocks = "CAST(LAST_INSERT_ID(stock + ?) AS SIGNED), version = version + 1"
