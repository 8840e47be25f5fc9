package size

import (
	"maps"
	"math"
)

// busy is the share of its CPU time that a station should need: above, waiting times grow fast.
const busy = 0.7

// MostUsers is how many users of an item predictions allow for: calibrations have no more.
var MostUsers = Levels[len(Levels)-1]

// A Question asks what a strategy needs for a goodput.
type Question struct {
	Sales float64 // per second
	Setting
}

// An Answer says what a strategy needs for a goodput, or why it cannot reach it.
type Answer struct {
	Strategy  string
	Limit     float64 // the most sales per second, with as many cores as they need
	LimitedBy string
	// The rest is known if the limit is high enough.
	Users   int     // that the goodput needs at least
	Latency float64 // mean, in seconds
	Cores   map[Station]float64
}

// Possible reports whether the strategy reaches the goodput.
func (a Answer) Possible() bool { return a.Users > 0 }

// onTarget is the profile without what only the lab needs.
func (p *Profile) onTarget() *Profile {
	target := *p
	target.Costs = nil
	for _, c := range p.Costs {
		c.CPU, c.Apart = maps.Clone(c.CPU), maps.Clone(c.Apart)
		delete(c.CPU, Load)
		delete(c.Apart, Load)
		target.Costs = append(target.Costs, c)
	}
	return &target
}

// target is a machine whose stations have cores of their own.
var target Machine

// Answer answers a question.
func (p *Profile) Answer(q Question) Answer {
	p = p.onTarget()
	a := Answer{Strategy: p.Strategy}
	a.Limit, a.LimitedBy = p.limit(q.Setting)
	for users := 1; users <= MostUsers*q.Items && a.Limit >= q.Sales; users = more(users) {
		s := q.Setting
		s.Users, s.Cores = users, map[Station]float64{}
		c, needs := p.at(s), map[Station]float64{}
		c.needs(q.Sales, nil, needs)
		reached := min(1, math.Exp(c.Residual)) // if less was sold than computed, more cores are needed
		for station, need := range needs {
			if need > 0 {
				s.Cores[station] = math.Ceil(q.Sales*need/busy/reached*10) / 10
			}
		}
		if sized := p.Predict(target, s); sized.Goodput >= q.Sales {
			a.Users, a.Latency, a.Cores = users, sized.Latency, s.Cores
			break
		}
	}
	return a
}

// limit is the most sales per second in a setting, with any number of users up to the most that were measured. Stations
// without a limit have as many cores as they need. The profile must be one of a target.
func (p *Profile) limit(s Setting) (sales float64, by string) {
	for users := 1; users <= MostUsers*s.Items; users = more(users) {
		s.Users = users
		if predicted := p.Predict(target, s); predicted.Goodput > sales {
			sales, by = predicted.Goodput, predicted.Bottleneck
			switch {
			case sales*p.at(s).CPU[Redis] > 0.9*redisThreads:
				by = string(Redis)
			case by == item:
				by = p.largestPart(s)
			}
		}
	}
	return sales, by
}

// more is the next number of users to try.
func more(users int) int { return users + max(1, users/8) }

// largestPart names the largest part of the time for which a sale keeps others out.
func (p *Profile) largestPart(s Setting) string {
	c := p.at(s)
	statements := (1 - c.Overlap) * p.serialCPU(c)
	name, longest, flushed := "statements", 0.0, c.Flushes*p.FlushTime
	for _, part := range []struct {
		name string
		time float64
	}{
		{"statements", max(0, c.Serial-flushed) + statements},
		{"round trips", c.RoundTrips * s.AddedRTT.Seconds()},
		{"commits", flushed + c.Flushes*s.AddedFlush.Seconds()},
	} {
		if part.time > longest {
			name, longest = part.name, part.time
		}
	}
	return name
}
