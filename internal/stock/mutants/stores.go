package mutants

var storeBugs = []Mutant{
	{
		Name: "mysql-one-too-few", Strategy: "update",
		Planted: "The stock in MySQL is set to one unit too few.",
		change:  onEvery(1, "INSERT INTO good_stock", adding(1, -1)),
	},
	{
		Name: "redis-one-too-few", Strategy: "redis-script",
		Planted: "The stock in Redis is set to one unit too few.",
		change:  rewriteLua(1, "redis.call('SET', KEYS[1], ARGV[1])", "redis.call('SET', KEYS[1], ARGV[1] - 1)"),
	},
	{
		Name: "slots-one-too-few", Strategy: "slots",
		Planted: "The stock of the first slot is set to one unit too few.",
		change:  onEvery(1, spreads, adding(2, -1)),
	},
	{
		Name: "redis-keeps-the-old", Strategy: "redis-script",
		Planted: "The stock in Redis is set only if there is none.",
		change:  rewriteLua(1, "redis.call('SET', KEYS[1], ARGV[1])", "redis.call('SET', KEYS[1], ARGV[1], 'NX')"),
	},
	{
		Name: "mysql-one-too-few-behind", Strategy: "redis-stream",
		Planted: "The stock in MySQL, to which sales in Redis are written later, is set to one unit too few.",
		change:  onEvery(1, "INSERT INTO good_stock", adding(1, -1)),
	},
}
