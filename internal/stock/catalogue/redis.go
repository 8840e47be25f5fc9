package catalogue

import (
	"stock/internal/stock"
	"stock/internal/stock/redis"
	"stock/internal/stock/stream"
)

// redisStrategies sell from Redis.
var redisStrategies = []stock.Strategy{
	control(lock("redis-none", newNone, losesUpdates,
		"GET the stock, subtract the count, and SET it, without a lock.", stock.Redis)),
	control(on(stock.Redis, "redis-prededuct", redis.NewPrededuct, undersells,
		"DECRBY, and INCRBY if that fell below zero: meanwhile, others are refused.")),
	control(on(stock.Redis, "local-sold-out", redis.NewLocalSoldOut, undersells,
		"As redis-prededuct, with a flag in the process once an item was sold out, which nothing resets.")),
	on(stock.Redis, "redis-watch", redis.NewWatch, asDurableAsRedis(optimisticLocking),
		"WATCH, GET, MULTI, SET, EXEC, else back off and retry. As durable as Redis is."),
	on(stock.Redis, "redis-script", redis.NewScript, asDurableAsRedis(overlapping(oneStatement, "")),
		"One Lua script checks and deducts, for all requests that wait in a replica. As durable as Redis is."),
	{
		Name:    "redis-then-mysql",
		Summary: "The script deducts in Redis, and an UPDATE in MySQL follows in the same request.",
		Claim: but(overlapping(oneStatement, ""), func(c *stock.Claim) {
			c.HolderCrash, c.ClientRetry = stock.CrashLosesUnits, stock.RetryDeductsAgain
		}),
		NoKeys:       "it sells in two stores, one after the other, and a key would be known in one of them",
		Stores:       []stock.Store{stock.Redis},
		Needs:        []stock.Need{stock.NeedMySQL},
		New:          stream.NewThenMySQL,
		WriteThrough: true,
	},
	{
		Name:        "redis-stream",
		Summary:     "A script deducts and adds the sale to a stream; a consumer group writes it to MySQL, exactly once.",
		Claim:       asDurableAsRedis(overlapping(oneStatement, "")),
		Stores:      []stock.Store{stock.Redis},
		Needs:       []stock.Need{stock.NeedMySQL},
		New:         stream.New,
		WriteBehind: true,
	},
}
