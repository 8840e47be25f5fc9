package mutants

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"
)

// hook carries a mutant's scripts and commands to Redis.
type hook struct{ plan *plan }

// DialHook implements redis.Hook.
func (h hook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook implements redis.Hook.
func (h hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// ProcessHook implements redis.Hook.
func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	if command, send := h.plan.command, next; command != nil {
		next = func(ctx context.Context, cmd redis.Cmder) error { return command(ctx, cmd, send) }
	}
	if h.plan.script == nil {
		return next
	}
	return func(ctx context.Context, cmd redis.Cmder) error {
		switch args := cmd.Args(); cmd.Name() {
		case "evalsha": // Redis may know the script: it must be sent, so that it can be changed
			cmd.SetErr(errNoScript)
			return errNoScript
		case "eval":
			args[1] = h.plan.script(args[1].(string))
		}
		return next(ctx, cmd)
	}
}

// errNoScript is what Redis answers if it does not know a script.
const errNoScript noScriptError = "NOSCRIPT No matching script."

type noScriptError string

func (e noScriptError) Error() string { return string(e) }

// RedisError implements redis.Error.
func (noScriptError) RedisError() {}

// rewriteLua edits every n-th script that contains the first text: it replaces the first text by the second, the third
// by the fourth, and so on.
func rewriteLua(n int64, pairs ...string) change {
	return func(p *plan) {
		strikes := p.every(n)
		p.script = func(lua string) string {
			if strings.Contains(lua, pairs[0]) && strikes() {
				return strings.NewReplacer(pairs...).Replace(lua)
			}
			return lua
		}
	}
}
