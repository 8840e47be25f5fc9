package mutants

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"
)

var redisBugs = []Mutant{
	mutant("redis-script-unchecked", "redis-script", "The script does not check that there is enough.",
		rewriteLua(1, "wanted <= units", "true")),
	mutant("redis-script-one-too-many", "redis-script", "The script grants one unit more than there is.",
		rewriteLua(1, "wanted <= units", "wanted <= units + 1")),
	mutant("redis-script-keeps-the-last", "redis-script", "The script never sells the last unit.",
		rewriteLua(1, "wanted <= units", "wanted < units")),
	mutant("redis-script-loses-a-sale", "redis-script", "1 call in 100 grants without deducting.",
		rewriteLua(100, "if taken > 0 then", "if false then")),
	mutant("redis-script-refuses", "redis-script", "1 call in 200 refuses its requests although there is enough.",
		rewriteLua(200, "wanted <= units", "false")),
	mutant("redis-script-forgets-a-refusal", "redis-script",
		"The script does not keep the refusals of requests with keys.",
		rewriteLua(1, "if own then", "if own and granted then")),
	mutant("redis-script-cancels-twice", "redis-script",
		"Cancellations of one sale at the same time give its units back twice.",
		rewriteLua(1, "(redis.call('GET', KEYS[1]) or '') ~= ARGV[1]", "false")),
	mutant("redis-script-cancels-beyond", "redis-script", "1 cancellation in 5 gives back one unit more than was sold.",
		rewriteLua(5, "'INCRBY', KEYS[2], ARGV[4])", "'INCRBY', KEYS[2], ARGV[4] + 1)")),
	mutant("redis-watch-unwatched", "redis-watch", "The key is not watched.",
		onCommand("watch", "", func(_ context.Context, cmd redis.Cmder, _ redis.ProcessHook) error {
			cmd.(*redis.StatusCmd).SetVal("OK")
			return nil
		})),
}

var streamBugs = []Mutant{
	mutant("redis-stream-check-first", "redis-stream",
		"The check that there is enough comes before the script, not in it.",
		onScript(addsSale, checkFirst)),
	mutant("redis-stream-loses-an-entry", "redis-stream", "1 call of the script in 100 adds nothing to the stream.",
		rewriteLua(100, addsSale, "")),
	mutant("redis-stream-no-deduction", "redis-stream",
		"1 call of the script in 100 adds its sales to the stream and does not deduct them in Redis.",
		rewriteLua(100, "redis.call('DECRBY', KEYS[1], taken)", "")),
	mutant("redis-stream-one-unit-each", "redis-stream",
		"The stream has one unit for each call of the script, whatever was asked for.",
		rewriteLua(1, "'units', taken", "'units', 1")),
	mutant("redis-stream-loses-a-unit", "redis-stream",
		"1 write to MySQL in 10 deducts one unit less than its entries have.",
		onEvery(10, writesBehind, adding(0, -1))),
	mutant("redis-stream-twice", "redis-stream", "1 write to MySQL in 10 is carried out twice.",
		rewrite(10, "SET stock = stock - ?, version = version + 1 WHERE", "SET stock = stock - 2 * ? WHERE")),
	mutant("redis-stream-no-epoch", "redis-stream",
		"Sales do not carry the epoch of their stock, so MySQL takes them for sales of an older stock.",
		rewriteLua(1, "redis.call('GET', KEYS[2]) or '0'", "'0'")),
}

// addsSale is in the script that sells.
const addsSale = "redis.call('XADD', KEYS[3], '*', 'units', taken, 'epoch', epoch, 'nonce', ARGV[1])"

// writesBehind is in the UPDATE of good_stock that follows the sales in Redis.
const writesBehind = "UPDATE good_stock SET stock = stock - ?"

// onCommand takes the place of a command whose last argument is the option. An empty option stands for any.
func onCommand(
	name, option string, instead func(context.Context, redis.Cmder, redis.ProcessHook) error,
) change {
	return func(p *plan) {
		p.command = func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			args := cmd.Args()
			if cmd.Name() != name || option != "" && args[len(args)-1] != option {
				return next(ctx, cmd)
			}
			p.strikes.Add(1)
			return instead(ctx, cmd, next)
		}
	}
}

// onScript takes the place of a script that contains the text.
func onScript(text string, instead func(context.Context, *redis.Cmd, redis.ProcessHook) error) change {
	return func(p *plan) {
		p.script = func(lua string) string { return lua } // without it, only the hash of a script is sent
		p.command = func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			script, isScript := cmd.(*redis.Cmd)
			if !isScript || cmd.Name() != "eval" || !strings.Contains(cmd.Args()[1].(string), text) {
				return next(ctx, cmd)
			}
			p.strikes.Add(1)
			return instead(ctx, script, next)
		}
	}
}

// checkFirst reads the stock before the script that sells, which checks what was read then.
func checkFirst(ctx context.Context, cmd *redis.Cmd, next redis.ProcessHook) error {
	args := cmd.Args() // EVAL, the script, the number of keys, the key of the stock
	get := redis.NewStringCmd(ctx, "get", args[3])
	if err := next(ctx, get); err != nil {
		cmd.SetErr(err)
		return err
	}
	args[1] = strings.Replace(args[1].(string), "wanted <= units", "wanted <= "+get.Val()+" - taken", 1)
	return next(ctx, cmd)
}
