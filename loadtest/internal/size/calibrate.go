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
var Levels = []int{1, 8, 32, 128}

// usualReplicas is the number of replicas of all calibrations.
const usualReplicas = 2

// What calibrations add.
const (
	longRTT     = 4 * time.Millisecond
	slowFlushes = 2 * time.Millisecond
	manyItems   = 256 // so that two users seldom want the same
	someUsers   = 32  // with other numbers of replicas
)

// Calibrations lists the settings that a profile is computed from.
func Calibrations() (all []Setting) {
	for _, users := range Levels {
		base := Setting{Users: users, Items: 1, Replicas: usualReplicas}
		slowRTT, slowFlush, apart := base, base, base
		slowRTT.AddedRTT, slowFlush.AddedFlush, apart.Items = longRTT, slowFlushes, manyItems
		all = append(all, base, slowRTT, slowFlush, apart)
	}
	for _, replicas := range []int{1, mostReplicas} {
		all = append(all, Setting{Users: someUsers, Items: 1, Replicas: replicas})
	}
	return all
}

// Host is the machine of this process.
func Host() Machine { return Machine{Cores: float64(runtime.NumCPU())} }

// Calibrate measures strategies, and computes their profiles.
func (r *Rig) Calibrate(ctx context.Context, strategies []string, b Basis, progress func(Job)) ([]*Profile, error) {
	settings := Calibrations()
	var jobs []Job
	for _, strategy := range strategies {
		for _, setting := range settings {
			jobs = append(jobs, Job{strategy, setting})
		}
	}
	samples, err := r.MeasureAll(ctx, jobs, progress)
	if err != nil {
		return nil, err
	}
	var profiles []*Profile
	each := len(settings)
	for i, strategy := range strategies {
		p := &Profile{Strategy: strategy, FlushTime: b.Commit.Seconds() / b.FlushesPerCommit}
		p.Samples = samples[i*each : (i+1)*each]
		p.Fit(Host())
		profiles = append(profiles, p)
	}
	return profiles, nil
}

// Fit computes the costs from the samples, which were measured on a machine.
func (p *Profile) Fit(m Machine) {
	of := func(users, items int, rtt, flush time.Duration) Sample {
		want := Setting{Users: users, Items: items, Replicas: usualReplicas, AddedRTT: rtt, AddedFlush: flush}
		i := slices.IndexFunc(p.Samples, func(s Sample) bool { return s.String() == want.String() })
		return p.Samples[i]
	}
	// What one user waits for is the sum of all delays.
	extra := func(slower Sample, delay time.Duration) float64 {
		return max(0, 1/slower.Goodput-1/of(1, 1, 0, 0).Goodput) / delay.Seconds()
	}
	p.RoundTrips = extra(of(1, 1, longRTT, 0), longRTT)
	p.Flushes = extra(of(1, 1, 0, slowFlushes), slowFlushes)
	p.Costs, p.Factors = nil, nil
	for _, users := range Levels {
		p.Costs = append(p.Costs, Cost{Users: users, CPU: of(users, 1, 0, 0).CPU, Apart: of(users, manyItems, 0, 0).CPU})
	}
	for i := len(Levels) - 1; i >= 0; i-- { // the last level comes first, because it finds p.Inside for the others
		users := Levels[i]
		p.fitLevel(m, &p.Costs[i], []Sample{of(users, 1, 0, 0), of(users, 1, longRTT, 0), of(users, 1, 0, slowFlushes)})
	}
	p.fitFactors()
}

// fitFactors compares the CPU times of samples with other numbers of replicas with those of the costs.
func (p *Profile) fitFactors() {
	costs := *p // without factors
	p.Factors = []Factors{{Replicas: usualReplicas}}
	for _, s := range p.Samples {
		if s.Replicas == usualReplicas {
			continue
		}
		f, usual := Factors{Replicas: s.Replicas, CPU: map[Station]float64{}}, costs.at(s.Setting).CPU
		for station, need := range s.CPU {
			if usual[station] > 0 {
				f.CPU[station] = need / usual[station]
			}
		}
		p.Factors = append(p.Factors, f)
	}
	slices.SortFunc(p.Factors, func(a, b Factors) int { return cmp.Compare(a.Replicas, b.Replicas) })
}

// fitLevel finds the times of a level that explain its samples best, by a search along each axis in turn with steps
// that become smaller (Hooke and Jeeves, 1961). The axes are the times for which a sale keeps others out: as it is,
// with slower round trips, and with slower flushes. Each is determined by samples of its own.
func (p *Profile) fitLevel(m Machine, c *Cost, samples []Sample) {
	type point [3]float64
	set := func(x point) {
		c.Serial = x[0]
		c.RoundTrips = min(p.RoundTrips, max(0, x[1]-x[0])/longRTT.Seconds())
		if c.Users == Levels[len(Levels)-1] { // the round trips inside show only where users wait
			p.Inside = c.RoundTrips
		}
		c.Flushes = min(p.Flushes, max(0, x[2]-x[0])/slowFlushes.Seconds())
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
					next[axis] = max(0, next[axis]+by)
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
