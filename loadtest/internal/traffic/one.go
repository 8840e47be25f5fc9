package traffic

import (
	"context"
	"time"

	"stock/loadtest/internal/history"
)

// SendOne sends the deduction or order that op describes to the service at base, on a connection of its own, and
// returns it with its answer. The load says everything but what is deducted.
func SendOne(ctx context.Context, base string, load Load, op history.Op) (history.Op, error) {
	driver, err := NewDriver(base, 1)
	if err != nil {
		return history.Op{}, err
	}
	defer driver.Close()
	load.Users = 1
	r := newRun(driver, load)
	stopCutting := r.cutWith(ctx)
	defer stopCutting()
	r.users[0].deduct(ctx, op)
	return r.collect(nil)[0], nil
}

// CallOne is SendOne for a request about a reservation.
func CallOne(ctx context.Context, base string, load Load, call history.Call) (history.Call, error) {
	driver, err := NewDriver(base, 1)
	if err != nil {
		return call, err
	}
	defer driver.Close()
	load.Users = 1
	r := newRun(driver, load)
	stopCutting := r.cutWith(ctx)
	defer stopCutting()
	return r.users[0].call(ctx, call), nil
}

// RestockOne puts the units back that op describes, in a store, through the admin listener of a replica, and returns op
// with its answer.
func RestockOne(ctx context.Context, admin, store string, timeout time.Duration, op history.Op) (history.Op, error) {
	server, err := newServer(admin)
	if err != nil {
		return history.Op{}, err
	}
	r := &restocker{
		load:   Load{Restock: &Restock{Store: store}, Timeout: timeout},
		server: server, connection: newConnection(server),
	}
	defer r.connection.close()
	r.putBack(ctx, &op)
	return op, nil
}
