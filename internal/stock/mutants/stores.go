package mutants

var storeBugs = []Mutant{
	mutant("mysql-one-too-few", "update", "The stock in MySQL is set to one unit too few.",
		onEvery(1, "INSERT INTO good_stock", adding(1, -1))),
	mutant("redis-one-too-few", "redis-script", "The stock in Redis is set to one unit too few.",
		rewriteLua(1, "redis.call('SET', KEYS[1], ARGV[1])", "redis.call('SET', KEYS[1], ARGV[1] - 1)")),
	mutant("slots-one-too-few", "slots", "The stock of the first slot is set to one unit too few.",
		onEvery(1, spreads, adding(2, -1))),
	mutant("redis-keeps-the-old", "redis-script", "The stock in Redis is set only if there is none.",
		rewriteLua(1, "redis.call('SET', KEYS[1], ARGV[1])", "redis.call('SET', KEYS[1], ARGV[1], 'NX')")),
	mutant("mysql-one-too-few-behind", "redis-stream",
		"The stock in MySQL, to which sales in Redis are written later, is set to one unit too few.",
		onEvery(1, "INSERT INTO good_stock", adding(1, -1))),
}
