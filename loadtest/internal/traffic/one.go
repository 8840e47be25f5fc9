package traffic

import (
	"bytes"
	"context"
	"fmt"

	"stock/loadtest/internal/history"
)

// SendOne sends the deduction that op describes to the service at base, on a connection of its own, and returns it with
// its answer. The load says everything but what is deducted. If pause is not empty, the request is parked at that pause
// point.
func SendOne(ctx context.Context, base string, load Load, pause string, op history.Op) (history.Op, error) {
	driver, err := NewDriver(base, 1)
	if err != nil {
		return history.Op{}, err
	}
	defer driver.Close()
	load.Users = 1
	r := newRun(driver, load)
	if pause != "" {
		header := bytes.TrimSuffix(r.deductHeader, requestID)
		r.deductHeader = fmt.Appendf(header, "X-Pause: %s\r\n%s", pause, requestID)
	}
	stopCutting := r.cutWith(ctx)
	defer stopCutting()
	r.users[0].deduct(ctx, op)
	return r.collect(nil)[0], nil
}
