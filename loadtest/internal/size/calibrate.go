package size

import (
	"cmp"
	"context"
	"math"
	"runtime"
	"slices"
	"time"
)

// Levels are the numbers of users for which a profile has costs.
var Levels = []int{2, 4, 8, 32, 128}

// usualReplicas is the number of replicas of a calibration that does not vary them.
const usualReplicas = 2

// What calibrations vary.
const (
	longRTT     = 4 * time.Millisecond
	slowFlushes = 2 * time.Millisecond
	itemsEach   = 4  // items for each user, so that two users seldom want the same
	someUsers   = 32 // with someItems
	someItems   = 8
)

// manyUsers are the numbers of users of calibrations with other numbers of replicas.
var manyUsers = []int{32, 128}

// Calibrations lists the settings that a profile is computed from.
func Calibrations() (all []Setting) {
	for _, users := range append([]int{1}, Levels...) {
		base := Setting{Users: users, Items: 1, Replicas: usualReplicas}
		slowRTT, slowFlush, manyItems := base, base, base
		slowRTT.AddedRTT, slowFlush.AddedFlush, manyItems.Items = longRTT, slowFlushes, itemsEach*users
		if all = append(all, base, slowRTT, slowFlush); users > 1 { // a single user shows only the delays
			all = append(all, manyItems)
		}
	}
	all = append(all, Setting{Users: someUsers, Items: someItems, Replicas: usualReplicas})
	for _, replicas := range []int{1, mostReplicas} {
		for _, users := range manyUsers {
			all = append(all, Setting{Users: users, Items: 1, Replicas: replicas})
		}
	}
	return all
}

// Host is the machine of this process.
func Host() Machine { return Machine{Cores: float64(runtime.NumCPU())} }

// Calibrate measures a strategy, and computes its profile.
func (r *Rig) Calibrate(ctx context.Context, strategy string, b Basis, progress func(Setting)) (*Profile, error) {
	p := &Profile{Strategy: strategy, FlushTime: b.Commit.Seconds() / b.FlushesPerCommit}
	var err error
	if p.Samples, err = r.MeasureAll(ctx, strategy, Calibrations(), progress); err != nil {
		return nil, err
	}
	p.Fit(Host())
	return p, nil
}

// sample returns the sample of a calibration.
func (p *Profile) sample(of Setting) Sample {
	return p.Samples[slices.IndexFunc(p.Samples, func(s Sample) bool { return s.String() == of.String() })]
}

// Fit computes the costs from the samples, which were measured on a machine.
func (p *Profile) Fit(m Machine) {
	of := func(users, items int, rtt, flush time.Duration) Sample {
		return p.sample(Setting{Users: users, Items: items, Replicas: usualReplicas, AddedRTT: rtt, AddedFlush: flush})
	}
	// What one user waits for is the sum of all delays.
	extra := func(slower Sample, delay time.Duration) float64 {
		return max(0, 1/slower.Goodput-1/of(1, 1, 0, 0).Goodput) / delay.Seconds()
	}
	p.RoundTrips = extra(of(1, 1, longRTT, 0), longRTT)
	p.Flushes = extra(of(1, 1, 0, slowFlushes), slowFlushes)
	p.Costs, p.Factors, p.Middle = nil, nil, 0
	for _, users := range Levels {
		same, manyItems := of(users, 1, 0, 0), of(users, itemsEach*users, 0, 0)
		c := Cost{
			Users: users, CPU: same.CPU, Rate: same.Goodput, Apart: manyItems.CPU, RateApart: manyItems.Goodput,
		}
		c.fitSlow(of(users, 1, longRTT, 0), of(users, 1, 0, slowFlushes))
		p.Costs = append(p.Costs, c)
	}
	for i := len(Levels) - 1; i >= 0; i-- { // the last level comes first, because it finds p.Inside for the others
		users := Levels[i]
		p.fitLevel(m, &p.Costs[i], []Sample{of(users, 1, 0, 0), of(users, 1, longRTT, 0), of(users, 1, 0, slowFlushes)})
	}
	p.fitFactors()
	p.fitResiduals(m)
}

// fitSlow sets RateSlow to the rate of the slowest sample. If that is at most half of Rate, it sets Slow to how many
// times as much CPU time a sale needed there.
func (c *Cost) fitSlow(samples ...Sample) {
	slowest := slices.MinFunc(samples, func(a, b Sample) int { return cmp.Compare(a.Goodput, b.Goodput) })
	if c.Slow, c.RateSlow = nil, slowest.Goodput; slowest.Goodput > c.Rate/2 {
		return
	}
	c.Slow = map[Station]float64{}
	for station, need := range c.CPU {
		if need > 0 {
			c.Slow[station] = max(1, slowest.CPU[station]/need)
		}
	}
}

// fitFactors compares the CPU times of samples with other numbers of replicas with those of the costs.
func (p *Profile) fitFactors() {
	costs := *p // without factors
	p.Factors = []Factors{{Replicas: usualReplicas}}
	for _, s := range p.Samples {
		if s.Replicas == usualReplicas {
			continue
		}
		f := Factors{Replicas: s.Replicas, Users: s.Users, CPU: map[Station]float64{}}
		usual := costs.at(s.Setting).CPU
		for station, need := range s.CPU {
			if usual[station] > 0 {
				f.CPU[station] = need / usual[station]
			}
		}
		p.Factors = append(p.Factors, f)
	}
	slices.SortFunc(p.Factors, func(a, b Factors) int {
		return cmp.Or(cmp.Compare(a.Replicas, b.Replicas), cmp.Compare(a.Users, b.Users))
	})
}

// fitResiduals finds what the costs do not explain of the samples without delays.
func (p *Profile) fitResiduals(m Machine) {
	of := func(s Setting) float64 { // beyond what was found so far
		return math.Log(p.sample(s).Goodput / p.Predict(m, s).Goodput)
	}
	for i := range p.Costs {
		c := &p.Costs[i]
		s := Setting{Users: c.Users, Items: 1, Replicas: usualReplicas}
		c.Residual = of(s)
		s.Items = itemsEach * c.Users
		c.ResidualApart = of(s)
	}
	p.Middle = of(Setting{Users: someUsers, Items: someItems, Replicas: usualReplicas})
	for i := range p.Factors {
		if f := &p.Factors[i]; f.Replicas != usualReplicas {
			f.Residual = of(Setting{Users: f.Users, Items: 1, Replicas: f.Replicas})
		}
	}
}

// fitLevel finds the Serial, Overlap, RoundTrips and Flushes that explain the three samples of a level best, by a
// pattern search whose steps become smaller (Hooke and Jeeves, 1961). Its axes are the times for which a sale keeps
// others out, not counting CPU time: as it is, with slower round trips, and with slower flushes. The first is negative
// if sales overlap.
func (p *Profile) fitLevel(m Machine, c *Cost, samples []Sample) {
	type point [3]float64
	set := func(x point) {
		c.RoundTrips = min(p.RoundTrips, max(0, x[1]-x[0])/longRTT.Seconds())
		if c.Users == Levels[len(Levels)-1] { // the round trips inside show only where users wait
			p.Inside = c.RoundTrips
		}
		c.Flushes = min(p.Flushes, max(0, x[2]-x[0])/slowFlushes.Seconds())
		c.Serial, c.Overlap = max(0, x[0]), 0
		if x[0] < 0 {
			c.Overlap = min(1, -x[0]/p.serialCPU(*c))
		}
	}
	away := func(x point) (sum float64) {
		set(x)
		for _, s := range samples {
			d := math.Log(m.solve(*c, p, s.Setting).Goodput / s.Goodput)
			sum += d * d
		}
		return sum
	}
	base := 1 / samples[0].Goodput
	best := point{base / 2, base/2 + p.RoundTrips*longRTT.Seconds()/2, base/2 + p.Flushes*slowFlushes.Seconds()/2}
	step := point{best[0] / 2, best[1] / 2, best[2] / 2}
	least := away(best)
	for range 12 {
		for moved := true; moved; {
			moved = false
			for axis := range best {
				for _, by := range []float64{-step[axis], step[axis]} {
					next := best
					next[axis] += by
					if d := away(next); d < least*(1-1e-6) {
						best, least, moved = next, d, true
					}
				}
			}
		}
		for axis := range step {
			step[axis] /= 2
		}
	}
	set(best)
}
