package load

import (
	"context"
	"fmt"
	"time"

	"stock/loadtest/internal/history"
	"stock/loadtest/internal/traffic"
)

// abundance is more units of an item than a warm-up can sell.
const abundance = 1_000_000_000

// warmUp runs every strategy briefly, with more stock than it can sell, to open connections, fill caches and learn its
// rate.
func (r *Runner) warmUp(ctx context.Context) error {
	units := map[int64]int64{}
	for _, row := range r.rows {
		for i := range row.Goods {
			units[int64(i+1)] = abundance
		}
	}
	if err := r.target.SetStock(ctx, units); err != nil {
		return err
	}
	measured := map[history.Subject]float64{}
	for i, row := range r.rows {
		// Rows that differ only in the name of the workload differ only in their stock, which is abundant here.
		unnamed := row.Subject
		unnamed.Workload.Name = ""
		if measured[unnamed] == 0 {
			var err error
			if measured[unnamed], err = r.warmUpRow(ctx, row, i); err != nil {
				return err
			}
		}
		r.rates[row.Subject] = measured[unnamed]
	}
	return nil
}

// warmUpRow returns the rate of a row, in answered requests per second.
func (r *Runner) warmUpRow(ctx context.Context, row row, i int) (float64, error) {
	mix, err := r.newMix(row, r.config.Seed)
	if err != nil {
		return 0, err
	}
	r.showProgress(Progress{Phase: "warm-up: " + row.Strategy})
	load := r.newLoad(row, mix, fmt.Sprintf("%s-warm%d", r.id, i))
	load.Rate, load.Requests, load.Duration = 0, 0, r.warmUpTime()
	result, err := r.drivers[row.Replicas].Run(ctx, load)
	if err != nil {
		return 0, err
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if err := checkNotAllRejected(result); err != nil {
		return 0, fmt.Errorf("warm-up of %s: %w", row.Label(), err)
	}
	return answerRate(result), nil
}

// warmUpTime returns the warm-up time of each setting. A sweep with all its settings takes little longer than a
// single one.
func (r *Runner) warmUpTime() time.Duration {
	return max(r.config.WarmUp/time.Duration(len(r.config.settings())), min(r.config.WarmUp, 100*time.Millisecond))
}

// checkNotAllRejected returns an error if the service rejected every request: the lab then asks for something that is
// impossible.
func checkNotAllRejected(result traffic.Result) error {
	for _, op := range result.Ops {
		if op.Outcome != history.Rejected {
			return nil
		}
	}
	if len(result.Ops) == 0 {
		return nil
	}
	return fmt.Errorf("the service rejects every request: %d %s", result.Ops[0].Status, result.Ops[0].Error)
}

// answerRate returns the answered requests per second.
func answerRate(result traffic.Result) float64 {
	return float64(result.Sent) / (float64(result.EndedNS-result.StartedNS) / float64(time.Second))
}
