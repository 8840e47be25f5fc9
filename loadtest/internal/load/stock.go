package load

import (
	"stock/loadtest/internal/traffic"
)

// scarcity is how many times the demand of a flash sale exceeds its stock: 6 000 requests for 1 000 units.
const scarcity = 6

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
