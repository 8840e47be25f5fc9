package scenario

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"stock/loadtest/internal/oracle"
	"stock/loadtest/internal/traffic"
)

// Workloads.
const (
	Plenty     = "plenty"      // as many units as are asked for
	FlashSale  = "flash-sale"  // a sixth of the units that are asked for
	GivenStock = "given-stock" // as many units as the user says
	FoundStock = "found-stock" // as many units as the service happens to have: the lab cannot set its stock
)

// scarcity is how many times the demand of a flash sale exceeds its stock: 6 000 requests on 1 000 units.
const scarcity = 6

// leastRequests is what a bounded cell sends at least: below it, races that are there do not show.
const leastRequests = 300

// Cell is one strategy under one workload in one setting. Each round runs it once.
type Cell struct {
	Choice
	Setting
}

func (c Cell) String() string {
	replicas := "1 replica"
	if c.Replicas != 1 {
		replicas = fmt.Sprintf("%d replicas", c.Replicas)
	}
	return fmt.Sprintf("%s, %s, %s", c.Strategy.Name, c.Workload.Name, replicas)
}

// durable is the store in which a sale counts.
func (c Cell) durable() string {
	if c.Strategy.WriteBehind {
		return oracle.MySQL
	}
	return c.Store
}

// key tells cells apart.
type key struct {
	strategy, store string
	setting         Setting
}

func (c Cell) key() key { return key{c.Strategy.Name, c.Store, c.Setting} }

// Cells lists what a round runs. A strategy that promises more of one replica than of several also runs on one, where the
// topology has a way to one (alone): the difference is the point of it.
func Cells(choices []Choice, workloads []string, settings []Setting, alone bool) []Cell {
	var cells []Cell
	for _, choice := range choices {
		for _, workload := range workloads {
			for _, setting := range settings {
				setting.Workload.Name = workload
				cells = append(cells, Cell{choice, setting})
				if s := choice.Strategy; setting.Replicas > 1 && alone && s.Claim.OneReplica != s.Claim.TwoReplicas {
					setting.Replicas = 1
					cells = append(cells, Cell{choice, setting})
				}
			}
		}
	}
	return cells
}

// Order is the order in which a round runs its cells. Whatever grows or drifts during a run (a log, a temperature, a
// neighbour) then does not always meet the same strategy.
func Order(cells []Cell, seed uint64, round int) []Cell {
	cells = slices.Clone(cells)
	generator := rand.New(rand.NewPCG(seed, uint64(round)))
	generator.Shuffle(len(cells), func(i, j int) { cells[i], cells[j] = cells[j], cells[i] })
	return cells
}

// Share is the time that one run may take so that all together keep to the budget: runs that want less than an equal share
// leave the rest to the others (max-min fairness). It is at least the longest want where the budget is enough for all.
func Share(budget time.Duration, wanted []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(wanted))
	for i, want := range sorted {
		share := budget / time.Duration(len(sorted)-i)
		if want > share {
			return max(share, 0)
		}
		budget -= want
	}
	if len(sorted) == 0 {
		return max(budget, 0)
	}
	return sorted[len(sorted)-1]
}

// Fit is how many of the wanted requests go into a time at a rate (requests a second), and why fewer than wanted.
func Fit(wanted int, rate float64, limit time.Duration) (requests int, bounded string) {
	// A few per cent are not worth a different sample size: rates are known no better.
	requests = int(rate * limit.Seconds())
	if requests >= wanted-wanted/20 {
		return wanted, ""
	}
	requests = min(wanted, max(requests, leastRequests))
	if requests == wanted {
		return wanted, ""
	}
	return requests, fmt.Sprintf("%s of %s requests: %.1f s limit", thousands(requests), thousands(wanted), limit.Seconds())
}

// Units is the stock of a workload for the first n orders of a mix, by goods. given is the user's own figure, of all goods.
func Units(workload string, mix *traffic.Mix, n int, given int64) map[int64]int64 {
	units := mix.Demand(n)
	switch workload {
	case FlashSale:
		for id, demand := range units {
			units[id] = max(1, demand/scarcity)
		}
	case GivenStock:
		goods := int64(len(units))
		for id := range units {
			units[id] = given / goods
			if id <= given%goods {
				units[id]++
			}
		}
	}
	return units
}

// Affordable is how many of the first n orders of a mix the stock satisfies: the longest run of orders in which each goods has
// enough.
func Affordable(ctx context.Context, mix *traffic.Mix, n int, units map[int64]int64) (int, error) {
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

// thousands writes 12345 as 12 345.
func thousands(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s %03d", thousands(n/1000), n%1000)
}
