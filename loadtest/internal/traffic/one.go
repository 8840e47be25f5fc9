package traffic

import (
	"context"
	"time"

	"stock/loadtest/internal/history"
)

// SendOne sends the deduction or order that op describes to the service at base, on a connection of its own, and
// returns it with its answer. The load says everything but what is deducted.
func SendOne(ctx context.Context, base string, load Load, op history.Op) (history.Op, error) {
	return recordOne(ctx, base, load, func(u *user) { u.deduct(ctx, op) })
}

// RestockOne puts the units back that op describes, in a store, through the admin listener of a replica, and returns op
// with its answer.
func RestockOne(ctx context.Context, admin, store string, timeout time.Duration, op history.Op) (history.Op, error) {
	load := Load{Restock: &Restock{Store: store}, Timeout: timeout}
	return recordOne(ctx, admin, load, func(u *user) { u.restock(ctx, op) })
}

func recordOne(ctx context.Context, base string, load Load, send func(*user)) (history.Op, error) {
	u, end, err := oneUser(ctx, base, load)
	if err != nil {
		return history.Op{}, err
	}
	defer end()
	send(u)
	return u.run.collect(nil)[0], nil
}

// CallOne is SendOne for a request about a reservation.
func CallOne(ctx context.Context, base string, load Load, call history.Call) (history.Call, error) {
	u, end, err := oneUser(ctx, base, load)
	if err != nil {
		return call, err
	}
	defer end()
	return u.call(ctx, call), nil
}

// CancelOne is SendOne for a request to cancel a sale as a whole.
func CancelOne(ctx context.Context, base string, load Load, sale history.Op) (history.Cancellation, error) {
	u, end, err := oneUser(ctx, base, load)
	if err != nil {
		return history.Cancellation{}, err
	}
	defer end()
	return u.cancelOnce(ctx, sale, everything), nil
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
