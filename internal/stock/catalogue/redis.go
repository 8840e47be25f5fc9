package catalogue

import (
	"stock/internal/stock"
	"stock/internal/stock/redis"
	"stock/internal/stock/stream"
)

// redisStrategies sell from Redis.
var redisStrategies = []stock.Strategy{
	{
		Name:    "redis-none",
		NoKeys:  asPeopleWriteIt,
		Summary: "GET the stock, subtract the count, and SET it, without a lock.",
		Claim:   losesUpdates,
		Control: true,
		Stores:  []stock.Store{stock.Redis},
		Lock:    newNone,
	},
	{
		Name:    "redis-prededuct",
		NoKeys:  asPeopleWriteIt,
		Summary: "DECRBY, and INCRBY if that fell below zero: meanwhile, others are refused.",
		Claim:   undersells,
		Control: true,
		Stores:  []stock.Store{stock.Redis},
		New:     redis.NewPrededuct,
	},
	{
		Name:    "local-sold-out",
		NoKeys:  asPeopleWriteIt,
		Summary: "As redis-prededuct, with a flag in the process once an item was sold out, which nothing resets.",
		Claim:   undersells,
		Control: true,
		Stores:  []stock.Store{stock.Redis},
		New:     redis.NewLocalSoldOut,
	},
	{
		Name:    "redis-watch",
		Summary: "WATCH, GET, MULTI, SET, EXEC, else back off and retry. As durable as Redis is.",
		Claim:   asDurableAsRedis(optimisticLocking),
		Stores:  []stock.Store{stock.Redis},
		New:     redis.NewWatch,
	},
	{
		Name:    "redis-script",
		Summary: "One Lua script checks and deducts, for all requests that wait in a replica. As durable as Redis is.",
		Claim:   asDurableAsRedis(overlapping(oneStatement)),
		Stores:  []stock.Store{stock.Redis},
		New:     redis.NewScript,
	},
	{
		Name:         "redis-then-mysql",
		Summary:      "The script deducts in Redis, and an UPDATE in MySQL follows in the same request.",
		Claim:        deductingAgain(onCrash(overlapping(oneStatement), stock.CrashLosesUnits)),
		NoKeys:       "it sells in two stores, one after the other, and a key would be known in one of them",
		Stores:       []stock.Store{stock.Redis},
		Needs:        []stock.Need{stock.NeedMySQL},
		New:          stream.NewThenMySQL,
		WriteThrough: true,
	},
	{
		Name:        "redis-stream",
		Summary:     "A script deducts and adds the sale to a stream; a consumer group writes it to MySQL, exactly once.",
		Claim:       asDurableAsRedis(overlapping(oneStatement)),
		Stores:      []stock.Store{stock.Redis},
		Needs:       []stock.Need{stock.NeedMySQL},
		New:         stream.New,
		WriteBehind: true,
	},
}
