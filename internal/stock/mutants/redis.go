package mutants

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"
)

var redisBugs = []Mutant{
	{
		Name: "redis-script-unchecked", Strategy: "redis-script",
		Planted: "The script does not check that there is enough.",
		change:  rewriteLua(1, "wanted <= units", "true"),
	},
	{
		Name: "redis-script-one-too-many", Strategy: "redis-script",
		Planted: "The script grants one unit more than there is.",
		change:  rewriteLua(1, "wanted <= units", "wanted <= units + 1"),
	},
	{
		Name: "redis-script-keeps-the-last", Strategy: "redis-script",
		Planted: "The script never sells the last unit.",
		change:  rewriteLua(1, "wanted <= units", "wanted < units"),
	},
	{
		Name: "redis-script-loses-a-sale", Strategy: "redis-script",
		Planted: "1 call in 100 grants without deducting.",
		change:  rewriteLua(100, "if taken > 0 then", "if false then"),
	},
	{
		Name: "redis-script-refuses", Strategy: "redis-script",
		Planted: "1 call in 200 refuses its requests although there is enough.",
		change:  rewriteLua(200, "wanted <= units", "false"),
	},
	{
		Name: "redis-script-forgets-a-refusal", Strategy: "redis-script",
		Planted: "The script does not keep the refusals of requests with keys.",
		change:  rewriteLua(1, "if own then", "if own and granted then"),
	},
	{
		Name: "redis-script-cancels-twice", Strategy: "redis-script",
		Planted: "Cancellations of one sale at the same time give its units back twice.",
		change:  rewriteLua(1, "(redis.call('GET', KEYS[1]) or '') ~= ARGV[1]", "false"),
	},
	{
		Name: "redis-script-cancels-beyond", Strategy: "redis-script",
		Planted: "1 cancellation in 5 gives back one unit more than was sold.",
		change:  rewriteLua(5, "'INCRBY', KEYS[key], ARGV[arg])", "'INCRBY', KEYS[key], ARGV[arg] + 1)"),
	},
	{
		Name: "redis-watch-unwatched", Strategy: "redis-watch",
		Planted: "The key is not watched.",
		change: onCommand("watch", "", func(_ context.Context, cmd redis.Cmder, _ redis.ProcessHook) error {
			cmd.(*redis.StatusCmd).SetVal("OK")
			return nil
		}),
	},
}

var streamBugs = []Mutant{
	{
		Name: "redis-stream-check-first", Strategy: "redis-stream",
		Planted: "The check that there is enough comes before the script, not in it.",
		change:  onScript(addsSale, checkFirst),
	},
	{
		Name: "redis-stream-loses-an-entry", Strategy: "redis-stream",
		Planted: "1 call of the script in 100 adds nothing to the stream.",
		change:  rewriteLua(100, addsSale, ""),
	},
	{
		Name: "redis-stream-no-deduction", Strategy: "redis-stream",
		Planted: "1 call of the script in 100 adds its sales to the stream and does not deduct them in Redis.",
		change:  rewriteLua(100, "redis.call('DECRBY', KEYS[1], taken)", ""),
	},
	{
		Name: "redis-stream-one-unit-each", Strategy: "redis-stream",
		Planted: "The stream has one unit for each call of the script, whatever was asked for.",
		change:  rewriteLua(1, "'units', taken", "'units', 1"),
	},
	{
		Name: "redis-stream-loses-a-unit", Strategy: "redis-stream",
		Planted: "1 write to MySQL in 10 deducts one unit less than its entries have.",
		change:  onEvery(10, writesBehind, adding(0, -1)),
	},
	{
		Name: "redis-stream-twice", Strategy: "redis-stream",
		Planted: "1 write to MySQL in 10 is carried out twice.",
		change:  rewrite(10, "SET stock = stock - ?, version = version + 1 WHERE", "SET stock = stock - 2 * ? WHERE"),
	},
	{
		Name: "redis-stream-no-epoch", Strategy: "redis-stream",
		Planted: "Sales do not carry the epoch of their stock, so MySQL takes them for sales of an older stock.",
		change:  rewriteLua(1, "redis.call('GET', KEYS[2]) or '0'", "'0'"),
	},
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
