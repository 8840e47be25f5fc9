package mutants

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"stock/internal/must"
)

func TestEveryNthScriptThatContainsTheTextStrikes(t *testing.T) {
	t.Parallel()
	p := &plan{}
	rewriteLua(2, "x", "y")(p)
	for i, test := range []struct{ script, want string }{{"x", "x"}, {"a", "a"}, {"x", "y"}, {"a", "a"}, {"x", "x"}} {
		if got := p.script(test.script); got != test.want {
			t.Errorf("script %d: %q is sent as %q, want %q", i+1, test.script, got, test.want)
		}
	}
	wantStrikes(t, p, 1)
}

func TestACommandWithAnotherOptionIsNoStrike(t *testing.T) {
	t.Parallel()
	p := &plan{}
	replaced := 0
	onCommand("set", "NX", func(context.Context, redis.Cmder, redis.ProcessHook) error {
		replaced++
		return nil
	})(p)
	for _, args := range [][]any{{"set", "key", "1"}, {"set", "key", "1", "NX"}, {"get", "NX"}} {
		sent := func(context.Context, redis.Cmder) error { return nil }
		must.Succeed(t, p.command(t.Context(), redis.NewCmd(t.Context(), args...), sent))
	}
	if replaced != 1 {
		t.Errorf("%d commands were replaced, want 1", replaced)
	}
	wantStrikes(t, p, 1)
}

func wantStrikes(t *testing.T, p *plan, want int64) {
	t.Helper()
	if got := p.strikes.Load(); got != want {
		t.Errorf("%d strikes, want %d", got, want)
	}
}
