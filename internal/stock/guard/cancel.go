package guard

import (
	"context"

	"stock/internal/locks"
)

// underLocks does work under the locks of some items.
func (g guarded) underLocks(ctx context.Context, items []int64, work func(context.Context) error) (err error) {
	if len(items) == 0 {
		return work(ctx)
	}
	keys := make([]string, len(items))
	for i, id := range items {
		keys[i] = g.key(id)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	leases, err := locks.LockAll(ctx, orderLocker{g, nil, cancel}, keys...)
	if err != nil {
		return classifyLock(ctx, err)
	}
	defer func() { g.unlock(leases.Lease, items, err) }()
	return work(leases.Context())
}
