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
	Zipf    = "zipf" // the k-th goods is asked for 1/k as often as the first
)

// MixConfig says what customers ask for.
type MixConfig struct {
	Seed     uint64
	Goods    int    // ids 1 to Goods
	Skew     string // Uniform or Zipf
	MinCount int64  // units an order
	MaxCount int64
}

// Mix is an endless sequence of orders. The i-th order depends on the seed and i alone, not on who sends it or when: the
// demand of any number of orders is known before the first one is sent.
type Mix struct {
	config     MixConfig
	cumulative []float64 // the chance of a goods or one before it
}

// NewMix fails where the configuration makes no sense.
func NewMix(config MixConfig) (*Mix, error) {
	if config.Goods < 1 {
		return nil, fmt.Errorf("goods %d: at least 1 is needed", config.Goods)
	}
	if config.MinCount < 1 || config.MaxCount < config.MinCount {
		return nil, fmt.Errorf("counts %d-%d: a range of at least 1 is needed", config.MinCount, config.MaxCount)
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

// At is the i-th order.
func (m *Mix) At(i int) (goodsID, count int64) {
	// A generator for each order: reseeding a PCG costs as much as drawing from it.
	var generator rand.PCG
	generator.Seed(m.config.Seed, uint64(i))
	goodsID = 1
	if m.config.Goods > 1 {
		chance := float64(generator.Uint64()>>11) / (1 << 53)
		goodsID = int64(1 + min(sort.SearchFloat64s(m.cumulative, chance), m.config.Goods-1))
	}
	count = m.config.MinCount
	if span := m.config.MaxCount - m.config.MinCount; span > 0 {
		draw, _ := bits.Mul64(generator.Uint64(), uint64(span)+1)
		count += int64(draw)
	}
	return goodsID, count
}

// Demand is the units that the first n orders ask for, by goods. Every goods of the mix has an entry.
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

// Goods lists the ids of the mix.
func (m *Mix) Goods() []int64 {
	ids := make([]int64, m.config.Goods)
	for k := range ids {
		ids[k] = int64(k + 1)
	}
	return ids
}
