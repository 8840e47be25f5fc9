package size

import (
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

// Delays that calibrations add.
const (
	shortRTT    = time.Millisecond
	longRTT     = 4 * time.Millisecond
	slowFlushes = 2 * time.Millisecond
)

// Calibrations lists the settings that a profile is computed from.
func Calibrations() (all []Setting) {
	for _, users := range Levels {
		base := Setting{Users: users, Items: 1, Replicas: usualReplicas}
		all = append(all, base)
		for _, slower := range []Setting{{AddedRTT: shortRTT}, {AddedRTT: longRTT}, {AddedFlush: slowFlushes}} {
			s := base
			s.AddedRTT, s.AddedFlush = slower.AddedRTT, slower.AddedFlush
			all = append(all, s)
		}
	}
	return all
}

// Host is the machine of this process.
func Host() Machine {
	cores := float64(runtime.NumCPU())
	return Machine{Cores: cores, Threads: map[Station]float64{
		Load: float64(runtime.GOMAXPROCS(0)), Nginx: cores, Service: cores, Redis: 1,
	}}
}

// Calibrate measures a strategy, and computes its profile.
func (r *Rig) Calibrate(ctx context.Context, strategy string, b Basis, progress func(Setting)) (*Profile, error) {
	p := &Profile{Strategy: strategy, FlushTime: b.Commit.Seconds() / b.FlushesPerCommit}
	for _, setting := range Calibrations() {
		progress(setting)
		sample, err := r.Measure(ctx, strategy, setting)
		if err != nil {
			return nil, err
		}
		p.Samples = append(p.Samples, sample)
	}
	p.Fit(Host())
	return p, nil
}

// Fit computes the costs from the samples, which were measured on a machine.
func (p *Profile) Fit(m Machine) {
	of := func(users int, rtt, flush time.Duration) Sample {
		i := slices.IndexFunc(p.Samples, func(s Sample) bool {
			return s.Users == users && s.Items == 1 && s.AddedRTT == rtt && s.AddedFlush == flush && len(s.Cores) == 0
		})
		return p.Samples[i]
	}
	// What one user waits for is the sum of all delays.
	extra := func(slower Sample, delay time.Duration) float64 {
		return max(0, 1/slower.Goodput-1/of(1, 0, 0).Goodput) / delay.Seconds()
	}
	p.RoundTrips = extra(of(1, longRTT, 0), longRTT)
	p.Flushes = extra(of(1, 0, slowFlushes), slowFlushes)
	p.Costs = nil
	for _, users := range Levels {
		p.Costs = append(p.Costs, Cost{Users: users, CPU: of(users, 0, 0).CPU})
	}
	for i := len(Levels) - 1; i >= 0; i-- { // the last level comes first, because it finds p.Inside for the others
		users := Levels[i]
		p.fitLevel(m, &p.Costs[i], []Sample{
			of(users, 0, 0), of(users, shortRTT, 0), of(users, longRTT, 0), of(users, 0, slowFlushes),
		})
	}
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
