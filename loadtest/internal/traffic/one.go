package traffic

import (
	"context"
	"time"

	"stock/loadtest/internal/history"
)

// SendOne sends the request that op describes to the service at base, on a connection of its own, and returns it with
// its answer. The load says everything that op does not.
func SendOne(ctx context.Context, base string, load Load, op history.Op) (history.Op, error) {
	u, end, err := oneUser(ctx, base, load)
	if err != nil {
		return op, err
	}
	defer end()
	return u.send(ctx, op), nil
}

// RestockOne is SendOne for a restock of a store, through the admin listener of a replica.
func RestockOne(ctx context.Context, admin, store string, timeout time.Duration, op history.Op) (history.Op, error) {
	return SendOne(ctx, admin, Load{Restock: &Restock{Store: store}, Timeout: timeout}, op)
}

// oneUser returns a user with a connection of its own, and what closes it. It is closed early if ctx ends.
func oneUser(ctx context.Context, base string, load Load) (u *user, end func(), err error) {
	driver, err := NewDriver(1, base)
	if err != nil {
		return nil, nil, err
	}
	load.Users = 1
	r := newRun(driver, load)
	stopCutting := r.cutWith(ctx)
	return &r.users[0], func() { stopCutting(); driver.Close() }, nil
}
