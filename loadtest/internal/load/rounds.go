package load

import (
	"fmt"
	"math"
	"slices"
	"time"

	"stock/internal/stats"
	"stock/loadtest/internal/verify"
)

const (
	// leastRequests is what a brief cell sends however slow it is: with fewer, existing races do not show. A strategy that
	// claims to be wrong must be seen to be: it sends leastOfWrong.
	leastRequests, leastOfWrong = 200, 600
	// longestCell ends a brief cell that is much slower than its warm-up was. Units then remain.
	longestCell = 20 * time.Second
)

// cellTime is how long the load of a brief cell takes. It is longer for rows whose long latencies people look at: at
// the end of a cell, requests wait for fewer others.
func (c Config) cellTime(w row) time.Duration {
	latencies := c.Rate > 0 || w.strategy.Own || slices.Contains(c.Compared, w.Strategy)
	if latencies && w.Workload.Name != FlashSale && !w.wrong() {
		return 2 * time.Second
	}
	return 400 * time.Millisecond
}

// wrong reports whether the strategy claims to be wrong.
func (r row) wrong() bool { return r.claim() != verify.ClaimCorrect && !r.strategy.Baseline() }

// bound decides how many requests a cell sends, and returns how many to expect, which decides the stock.
func (c *cellRun) bound() (expected int) {
	load, rate := &c.load, c.rates[c.row.Subject]
	if load.Rate > 0 {
		rate = min(rate, load.Rate)
	}
	inTime := func(limit time.Duration) int { return int(math.Ceil(rate * limit.Seconds())) }
	switch {
	case judgedOnly(c.row.Workload.Name):
	case load.Requests == 0 && (load.Rate > 0 || c.row.Workload.Name == FlashSale):
		// A sixth of this is the stock of a flash sale. It must sell out even if the service is slower than it was.
		return inTime(load.Duration)
	case load.Requests == 0:
		return 3*inTime(load.Duration) + load.Users // the service may become faster
	case c.config.Brief:
		limit, least := c.config.cellTime(c.row), leastRequests
		if c.row.wrong() {
			least = leastOfWrong
		}
		if most := max(least, inTime(limit)); most < load.Requests {
			c.header.Bounded = limited(most, load.Requests, limit)
			load.Requests, load.Duration = most, longestCell
		}
	}
	return load.Requests
}

// limited says that a run sent fewer requests than planned because of a time limit.
func limited(requests, wanted int, limit time.Duration) string {
	return fmt.Sprintf("%s of %s requests: its time limit was %.1f s", stats.Grouped(requests), stats.Grouped(wanted),
		limit.Seconds())
}
