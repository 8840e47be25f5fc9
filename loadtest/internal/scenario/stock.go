package scenario

import (
	"context"
	"fmt"
	"math"

	"stock/loadtest/internal/traffic"
	"stock/loadtest/internal/verify"
)

// scarcity is how many times the demand of a flash sale exceeds its stock: 6 000 requests for 1 000 units.
const scarcity = 6

// generousRate is more requests per second than any service answers.
const generousRate = 100_000

// unitsFor returns the stock of a workload for the first n requests of a mix, by item. given is the stock that the user
// gave, of all items together.
func unitsFor(workload string, mix *traffic.Mix, n int, given int64) map[int64]int64 {
	units := mix.Demand(n)
	if w := judgedWorkloadOf(workload); w != nil {
		for id, demand := range units {
			units[id] = max(1, demand*w.stock/100)
		}
		return units
	}
	switch workload {
	case FlashSale:
		for id, demand := range units {
			units[id] = max(1, demand/scarcity)
		}
	case GivenStock:
		items := int64(len(units))
		for id := range units {
			units[id] = given / items
			if id <= given%items {
				units[id]++
			}
		}
	}
	return units
}

// affordableShare returns how many of the wanted requests the current run may send if all runs share the stock found.
func (c *cellRun) affordableShare(ctx context.Context, found map[int64]int64, wanted int) (int, error) {
	runs := int64(c.cells() - c.number + 1)
	affords := make(map[int64]int64, len(found))
	for id, units := range found {
		affords[id] = units / runs
	}
	n, err := affordable(ctx, c.mix, wanted, affords)
	if err != nil {
		return 0, err
	}
	if n < min(verify.MinAnswered, wanted) {
		return 0, fmt.Errorf("the service has too little stock for %d runs: %v (item: units): give --admin URL so that "+
			"the lab can set it, set it with PUT /admin/stock/{id} on an admin listener, or reduce --strategies and --rounds",
			runs, found)
	}
	return n, nil
}

// maxRequests returns the most requests that a run may send: without a given number, more than fit into its duration.
func (r *Runner) maxRequests() int {
	if r.config.Requests > 0 {
		return r.config.Requests
	}
	rate := r.config.Rate
	if rate == 0 {
		rate = generousRate
	}
	return int(math.Ceil(rate * r.config.Duration.Seconds()))
}

// affordable returns how many of the first n requests of a mix the stock satisfies, up to the first one that asks for
// more than is left of its item.
func affordable(ctx context.Context, mix *traffic.Mix, n int, units map[int64]int64) (int, error) {
	asked := map[int64]int64{}
	for i := range n {
		if i%(1<<16) == 0 && ctx.Err() != nil {
			return 0, ctx.Err()
		}
		id, count := mix.At(i)
		if asked[id] += count; asked[id] > units[id] {
			return i, nil
		}
	}
	return n, nil
}
