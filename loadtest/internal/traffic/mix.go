package traffic

import (
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"sort"
)

// Skews of a Mix.
const (
	Uniform = "uniform"
	Zipf    = "zipf" // the k-th item is asked for 1/k as often as the first
)

// MixConfig describes what customers ask for.
type MixConfig struct {
	Seed     uint64
	Goods    int    // number of items, with the ids from 1
	Skew     string // Uniform or Zipf
	MinCount int64  // units of a request
	MaxCount int64
}

// Mix is an endless sequence of requests. The i-th depends on the seed and i alone, not on who sends it or when, so
// that the demand of any number of requests is known before the first is sent.
type Mix struct {
	config     MixConfig
	cumulative []float64 // the probability of an item or one before it
}

// NewMix checks the configuration.
func NewMix(config MixConfig) (*Mix, error) {
	if config.Goods < 1 {
		return nil, fmt.Errorf("goods %d: must be at least 1", config.Goods)
	}
	if config.MinCount < 1 || config.MaxCount < config.MinCount {
		return nil, fmt.Errorf("counts %d-%d: must be a range from at least 1", config.MinCount, config.MaxCount)
	}
	exponent := 0.0
	switch config.Skew {
	case Uniform, "":
	case Zipf:
		exponent = 1
	default:
		return nil, fmt.Errorf("skew %q: it is %s or %s", config.Skew, Uniform, Zipf)
	}
	mix := &Mix{config: config, cumulative: make([]float64, config.Goods)}
	sum := 0.0
	for k := range mix.cumulative {
		sum += math.Pow(float64(k+1), -exponent)
		mix.cumulative[k] = sum
	}
	for k := range mix.cumulative {
		mix.cumulative[k] /= sum
	}
	return mix, nil
}

// At returns what the i-th request asks for.
func (m *Mix) At(i int) (goodsID, count int64) {
	// Each request has a generator of its own: seeding a PCG costs no more than drawing from it.
	var generator rand.PCG
	generator.Seed(m.config.Seed, uint64(i))
	goodsID = 1
	if m.config.Goods > 1 {
		probability := float64(generator.Uint64()>>11) / (1 << 53)
		goodsID = int64(1 + min(sort.SearchFloat64s(m.cumulative, probability), m.config.Goods-1))
	}
	count = m.config.MinCount
	if span := m.config.MaxCount - m.config.MinCount; span > 0 {
		draw, _ := bits.Mul64(generator.Uint64(), uint64(span)+1)
		count += int64(draw)
	}
	return goodsID, count
}

// Demand returns the units that the first n requests ask for, by item. Every item of the mix has an entry.
func (m *Mix) Demand(n int) map[int64]int64 {
	demand := make(map[int64]int64, m.config.Goods)
	for k := range m.config.Goods {
		demand[int64(k+1)] = 0
	}
	for i := range n {
		goodsID, count := m.At(i)
		demand[goodsID] += count
	}
	return demand
}

// Goods returns the ids of the items.
func (m *Mix) Goods() []int64 {
	ids := make([]int64, m.config.Goods)
	for k := range ids {
		ids[k] = int64(k + 1)
	}
	return ids
}
