package mutants

var restockBugs = []Mutant{
	mutant("mysql-restock-twice", "update", "1 restock in 5 adds its units twice.",
		rewrite(5, restocks, "CAST(LAST_INSERT_ID(stock + 2 * ?) AS SIGNED), version = version + 1")),
	mutant("mysql-restock-unversioned", "optimistic-version",
		"A restock does not increment the version, so a sale can overwrite it.",
		rewrite(1, restocks, "CAST(LAST_INSERT_ID(stock + ?) AS SIGNED)")),
	mutant("mysql-restock-unnoticed", "lock-redis-fenced",
		"The fence checks the token alone, so a holder that has read the stock before can overwrite a restock.",
		rewrite(1, fences, fencesTokens)),
	mutant("redis-restock-nothing", "redis-script", "1 restock in 2 is confirmed and not made.",
		rewriteLua(2, "return redis.call('INCRBY', KEYS[1], ARGV[1])", "return units + ARGV[1]")),
	mutant("redis-stream-restock-without-units", "redis-stream",
		"The entry of a restock has no units, so MySQL does not get them.",
		rewriteLua(1, "'units', '-' .. ARGV[1]", "'units', '0'")),
}

// restocks is in the UPDATE that adds units.
const restocks = "CAST(LAST_INSERT_ID(stock + ?) AS SIGNED), version = version + 1"
