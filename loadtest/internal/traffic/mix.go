package traffic

import (
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"sort"

	"stock/loadtest/internal/history"
)

// Skews of a Mix.
const (
	Uniform = "uniform"
	Zipf    = "zipf" // the k-th item is asked for 1/k as often as the first
)

// MixConfig describes what customers ask for.
type MixConfig struct {
	Seed       uint64
	Goods      int    // number of items
	Skew       string // Uniform or Zipf
	MinCount   int64  // units of a deduction, or of a line of an order
	MaxCount   int64
	OrderEvery int // n: every n-th request is an order; 0: none
	MaxLines   int // an order has 1 to MaxLines lines, each of another item
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
	if config.OrderEvery < 0 || config.OrderEvery > 0 && (config.MaxLines < 1 || config.MaxLines > config.Goods) {
		return nil, fmt.Errorf("orders of up to %d lines: must be from 1 to the number of items, %d",
			config.MaxLines, config.Goods)
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

// At returns what the i-th request asks for, which must not be an order: call it only if Order(i) is nil.
func (m *Mix) At(i int) (goodsID, count int64) {
	// Each request has a generator of its own: seeding a PCG costs no more than drawing from it.
	var generator rand.PCG
	generator.Seed(m.config.Seed, uint64(i))
	goodsID = m.drawItem(&generator)
	return goodsID, m.drawCount(&generator)
}

// Order returns the lines of the i-th request if it is an order, else nil.
func (m *Mix) Order(i int) []history.Line {
	if m.config.OrderEvery == 0 || (i+1)%m.config.OrderEvery != 0 {
		return nil
	}
	var generator rand.PCG
	generator.Seed(m.config.Seed, uint64(i))
	lines := make([]history.Line, 1+draw(&generator, m.config.MaxLines))
	for k := range lines {
		goodsID := m.drawItem(&generator)
		for slices.ContainsFunc(lines[:k], func(l history.Line) bool { return l.GoodsID == goodsID }) {
			goodsID = m.drawItem(&generator)
		}
		lines[k] = history.Line{GoodsID: goodsID, Count: m.drawCount(&generator)}
	}
	return lines
}

func (m *Mix) drawItem(generator *rand.PCG) (goodsID int64) {
	if m.config.Goods == 1 {
		return 1
	}
	probability := float64(generator.Uint64()>>11) / (1 << 53)
	return int64(min(sort.SearchFloat64s(m.cumulative, probability)+1, m.config.Goods))
}

func (m *Mix) drawCount(generator *rand.PCG) int64 {
	if m.config.MinCount == m.config.MaxCount {
		return m.config.MinCount
	}
	return m.config.MinCount + int64(draw(generator, int(m.config.MaxCount-m.config.MinCount+1)))
}

// draw returns a number from 0 to n-1.
func draw(generator *rand.PCG, n int) uint64 {
	high, _ := bits.Mul64(generator.Uint64(), uint64(n))
	return high
}

// Demand returns the units that the first n requests ask for, by item. Every item of the mix has an entry.
func (m *Mix) Demand(n int) map[int64]int64 {
	demand := make(map[int64]int64, m.config.Goods)
	for k := range m.config.Goods {
		demand[int64(k+1)] = 0
	}
	for i := range n {
		lines := m.Order(i)
		for _, line := range lines {
			demand[line.GoodsID] += line.Count
		}
		if lines == nil {
			goodsID, count := m.At(i)
			demand[goodsID] += count
		}
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
