package traffic

import (
	"context"
	"slices"
	"time"

	"stock/loadtest/internal/history"
)

// SendOne sends the request that op describes to the service at base, on a connection of its own, and returns it with
// its answer. The load says everything that op does not.
func SendOne(ctx context.Context, base string, load Load, op history.Op) (history.Op, error) {
	op, _, err := AskOne(ctx, base, load, op)
	return op, err
}

// AskOne is SendOne, and also returns the body of the answer.
func AskOne(ctx context.Context, base string, load Load, op history.Op) (asked history.Op, body []byte, err error) {
	u, end, err := oneUser(ctx, base, load)
	if err != nil {
		return op, nil, err
	}
	defer end()
	asked = u.send(ctx, op)
	return asked, slices.Clone(u.connection.reply.Body()), nil
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
