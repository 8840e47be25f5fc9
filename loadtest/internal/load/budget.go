package load

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"stock/internal/stats"
)

// minRequests is the least that a cell sends when it is bounded: with fewer, existing races do not show.
const minRequests = 200

// minCellTime is what a cell gets even if the budget is used up.
const minCellTime = 200 * time.Millisecond

// budgetLeft returns the time until the budget is used up.
func (r *Runner) budgetLeft() time.Duration { return time.Until(r.began.Add(r.config.Budget)) }

// limit returns the time for the current row, so that it and the rows after it that certainly run fit into the
// budget; 0: no limit. It is computed again before each cell from the rates as measured so far, so that a cell that
// takes longer than expected costs all later cells a little.
func (r *Runner) limit(ahead []row) time.Duration {
	if r.config.Budget == 0 {
		return 0
	}
	wanted := make([]time.Duration, len(ahead))
	for i, row := range ahead {
		wanted[i] = r.wanted(row)
	}
	limit := max(share(r.budgetLeft()-time.Duration(len(wanted))*r.overhead, wanted), minCellTime)
	if longest := r.longestOf(ahead[0]); longest > 0 {
		limit = min(limit, longest)
	}
	return limit
}

// longestOf returns the time limit of a row's cells; 0: none but the budget. In a short cell, the last requests of a
// slow strategy wait for fewer others than before, so its long latencies are missing: rows that people compare get more
// time.
func (r *Runner) longestOf(w row) time.Duration {
	rate := r.rates[w.Subject]
	if r.longest == 0 || rate == 0 || w.Workload.Name != Plenty || !w.ranked() ||
		!slices.Contains(r.config.Compared, w.Strategy) {
		return r.longest
	}
	takes := time.Duration(comparedPerUser * float64(r.config.Users) / rate * float64(time.Second))
	return max(r.longest, min(takes, longestCompared))
}

// left estimates the time until the end.
func (r *Runner) left(ahead []row) time.Duration {
	sum := time.Duration(0)
	for _, row := range ahead {
		sum += r.wanted(row) + r.overhead
	}
	switch least := time.Duration(len(ahead)) * (minCellTime + r.overhead); {
	case r.config.Rounds == 0: // rows run as long as there is time
		return max(least, r.budgetLeft())
	case r.config.Budget > 0:
		return min(sum, max(least, r.budgetLeft()))
	}
	return sum
}

// wanted estimates how long the traffic of a row takes if the budget does not limit it.
func (r *Runner) wanted(w row) time.Duration {
	if judged := judgedWorkloadOf(w.Workload.Name); judged != nil {
		return cmp.Or(judged.typical, typicalJudgedTime)
	}
	if r.config.Requests == 0 {
		return r.config.Duration
	}
	most := r.longestOf(w)
	longest := cmp.Or(most, r.config.Budget)
	rate := r.rates[w.Subject]
	if r.config.Rate > 0 && (rate == 0 || rate > r.config.Rate) {
		rate = r.config.Rate
	}
	if rate == 0 {
		return longest // unknown: let it have its whole share
	}
	takes := time.Duration(float64(r.config.Requests) / rate * float64(time.Second))
	if most > 0 {
		takes = min(takes, most)
	}
	return takes
}

// share returns how long one run may take at most if all together are to keep to the budget. Runs that want less than
// an equal share leave the rest to the others (max-min fairness). If the budget is enough for all, it returns the
// longest of wanted.
func share(budget time.Duration, wanted []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(wanted))
	for i, want := range sorted {
		equal := budget / time.Duration(len(sorted)-i)
		if want > equal {
			return max(equal, 0)
		}
		budget -= want
	}
	if len(sorted) == 0 {
		return max(budget, 0)
	}
	return sorted[len(sorted)-1]
}

// fit returns how many of the wanted requests fit into the limit at a rate (requests per second), and why if they are
// fewer than wanted.
func fit(wanted int, rate float64, limit time.Duration) (requests int, bounded string) {
	// Rates are not known more precisely than to five per cent: do not change the sample size for less.
	requests = int(rate * limit.Seconds())
	if requests >= wanted-wanted/20 {
		return wanted, ""
	}
	requests = min(wanted, max(requests, minRequests))
	if requests == wanted {
		return wanted, ""
	}
	return requests, limited(requests, wanted, limit)
}

// learnRate remembers the rate of the row. If the number of requests of its next run depends on it, that is the
// geometric mean with the rate before, so that one slow run does not make the next one too short.
func (c *cellRun) learnRate(rate float64) {
	if before := c.rates[c.row.Subject]; before > 0 && c.config.Requests > 0 {
		rate = math.Sqrt(before * rate)
	}
	c.rates[c.row.Subject] = rate
}

// limited says that a run sent fewer requests than planned because of a time limit.
func limited(requests, wanted int, limit time.Duration) string {
	return fmt.Sprintf("%s of %s requests: its time limit was %.1f s", stats.Grouped(requests), stats.Grouped(wanted),
		limit.Seconds())
}

// bound makes the load fit into the limit (0: none). It returns how many requests to expect, which decides the stock.
func (c *cellRun) bound(limit time.Duration) (expected int) {
	if judgedOnly(c.row.Workload.Name) {
		return c.load.Requests
	}
	load, byTime := &c.load, c.load.Requests == 0
	rate := max(c.rates[c.row.Subject], 1)
	if load.Rate > 0 {
		rate = min(rate, load.Rate)
	}
	switch {
	case byTime && c.row.Workload.Name == FlashSale:
		// A sixth of this is the stock. It must sell out even if the service is slower than it was.
		return int(math.Ceil(rate * load.Duration.Seconds()))
	case byTime && load.Rate > 0:
		return int(math.Ceil(load.Rate * load.Duration.Seconds()))
	case byTime:
		// A closed loop is as fast as the service: expect half as much again as last time.
		return int(1.5*rate*load.Duration.Seconds()) + load.Users
	case limit > 0:
		load.Requests, c.header.Bounded = fit(load.Requests, rate, limit)
		// If the rate collapses, the run ends by time, and units remain.
		predicted := time.Duration(float64(load.Requests) / rate * float64(time.Second))
		load.Duration = 2*predicted + time.Second
	}
	return load.Requests
}
