package stock

import (
	"context"
	"time"

	"stock/internal/locks"
)

type waitLimitKey struct{}

// LimitWait returns a context for one deduction or order that waits less than others do: each of its waits, for a lock,
// a row, a connection to MySQL or a retry, lasts at most limit instead of Deps.LockWait. A limit longer than that has
// no effect. With a limit of 0, the request is tried once: it waits only for answers of the servers.
func LimitWait(ctx context.Context, limit time.Duration) context.Context {
	if limit <= 0 {
		ctx, limit = locks.TryOnce(ctx), 0
	}
	return context.WithValue(ctx, waitLimitKey{}, limit)
}

// WaitLimit returns the limit of LimitWait, and whether there is one.
func WaitLimit(ctx context.Context) (limit time.Duration, limited bool) {
	limit, limited = ctx.Value(waitLimitKey{}).(time.Duration)
	return limit, limited
}

// LongestWait returns how long each wait of a request may last, if usual is that of a request without a limit.
func LongestWait(ctx context.Context, usual time.Duration) time.Duration {
	if limit, limited := WaitLimit(ctx); limited {
		return min(limit, usual)
	}
	return usual
}

// TriesOnce reports whether the limit of LimitWait is 0.
func TriesOnce(ctx context.Context) bool {
	limit, limited := WaitLimit(ctx)
	return limited && limit == 0
}
