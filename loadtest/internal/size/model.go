package size

import (
	"math"
	"slices"
)

// A Cost is what a sale costs a strategy with a number of users.
type Cost struct {
	Users int `json:"users"`
	// CPU time at each station, in seconds, if all want the same item.
	CPU map[Station]float64 `json:"cpu"`
	// The same if two seldom want the same item. Both depend on the number of users because a busy process is woken
	// less often, and then reads and writes more at once.
	Apart map[Station]float64 `json:"apart"`
	// Serial is how long a sale keeps others from selling the same item, in seconds, not counting CPU time. All sales of
	// a batch share one such time.
	Serial float64 `json:"serial"`
	// RoundTrips and Flushes are how many of each are in the time that a sale keeps others out.
	RoundTrips float64 `json:"round_trips"`
	Flushes    float64 `json:"flushes"`
}

// Factors multiply the CPU time of a sale at each station.
type Factors struct {
	Replicas int                 `json:"replicas"` // with which they were measured
	CPU      map[Station]float64 `json:"cpu"`
}

// A Profile is what was measured of a strategy.
type Profile struct {
	Strategy   string    `json:"strategy"`
	Costs      []Cost    `json:"costs"`   // by Users
	RoundTrips float64   `json:"rtts"`    // round trips of a sale that nobody else keeps waiting
	Flushes    float64   `json:"flushes"` // flushes of such a sale
	Inside     float64   `json:"inside"`  // round trips while a sale keeps many others out
	FlushTime  float64   `json:"flush"`   // how long a flush took, in seconds
	Factors    []Factors `json:"factors"` // by replicas
	Samples    []Sample  `json:"samples"` // what the profile was computed from
}

// A Machine is where the stations run.
type Machine struct {
	Cores float64 // that the stations share; 0: each has as many as it can use
}

// A Prediction is what the model computes for a setting.
type Prediction struct {
	Goodput    float64 // sales per second
	Latency    float64 // mean, in seconds
	Bottleneck string  // where a sale spends most of its time waiting
}

// serialShare is the share of a sale's statements, and so of its CPU time in MySQL and Redis, that run while it keeps
// others out: k round trips mean k+1 statements.
func (p *Profile) serialShare() float64 {
	if p.RoundTrips == 0 {
		return 0
	}
	return min(1, (p.Inside+1)/p.RoundTrips)
}

// batches reports whether the replicas carry out the requests of many users together: the stores then need less CPU
// time for each.
func (p *Profile) batches() bool {
	few, many := p.Costs[0].CPU, p.Costs[len(p.Costs)-1].CPU
	return many[MySQL]+many[Redis] < (few[MySQL]+few[Redis])/2
}

// at returns the costs in a setting. The times for which a sale keeps others out depend on the users per item. The CPU
// time lies between those of users who all want one item, and of users who all want different ones. If a strategy
// batches, both are those with as many users per replica.
func (p *Profile) at(s Setting) Cost {
	users := float64(s.Users)
	if p.batches() {
		users *= usualReplicas / float64(s.Replicas)
	}
	each := max(1, users/float64(s.Items))
	c, all := p.between(each), p.between(users)
	same := 1.0 // as if all wanted the same item
	switch {
	case s.Items == 1:
	case each == 1:
		same = 0
	default:
		same = math.Log(each) / math.Log(users)
	}
	c.CPU = map[Station]float64{}
	for station, apart := range all.Apart {
		c.CPU[station] = (apart + same*(all.CPU[station]-apart)) * p.factor(s.Replicas, station)
	}
	return c
}

// factor interpolates the factors linearly in the logarithm of the number of replicas. What was not measured has the
// factor 1.
func (p *Profile) factor(replicas int, station Station) float64 {
	of := func(f Factors) float64 {
		if v, ok := f.CPU[station]; ok {
			return v
		}
		return 1
	}
	i := slices.IndexFunc(p.Factors, func(f Factors) bool { return f.Replicas >= replicas })
	switch {
	case len(p.Factors) == 0:
		return 1
	case i < 0:
		return of(p.Factors[len(p.Factors)-1])
	case i == 0:
		return of(p.Factors[0])
	}
	a, b := p.Factors[i-1], p.Factors[i]
	share := math.Log(float64(replicas)/float64(a.Replicas)) / math.Log(float64(b.Replicas)/float64(a.Replicas))
	return of(a) + share*(of(b)-of(a))
}

// between interpolates the costs linearly in the logarithm of the number of users.
func (p *Profile) between(users float64) Cost {
	first, last := p.Costs[0], p.Costs[len(p.Costs)-1]
	if users <= float64(first.Users) {
		return first
	}
	if users >= float64(last.Users) {
		return last
	}
	i := slices.IndexFunc(p.Costs, func(c Cost) bool { return float64(c.Users) >= users })
	a, b := p.Costs[i-1], p.Costs[i]
	share := math.Log(users/float64(a.Users)) / math.Log(float64(b.Users)/float64(a.Users))
	mix := func(x, y float64) float64 { return x + share*(y-x) }
	c := Cost{
		CPU: map[Station]float64{}, Apart: map[Station]float64{}, Serial: mix(a.Serial, b.Serial),
		RoundTrips: mix(a.RoundTrips, b.RoundTrips), Flushes: mix(a.Flushes, b.Flushes),
	}
	for station := range a.CPU {
		c.CPU[station] = mix(a.CPU[station], b.CPU[station])
		c.Apart[station] = mix(a.Apart[station], b.Apart[station])
	}
	return c
}

// Predict computes the goodput of a strategy in a setting.
func (p *Profile) Predict(m Machine, s Setting) Prediction {
	return m.solve(p.at(s), p, s)
}

// solve finds the throughput at which all times agree, by the approximate mean value analysis of Schweitzer (1979): a
// user who arrives somewhere finds the queue that one user less would leave there. Two things are not in the textbook
// model. Stations slow each other down where they share cores. And a sale that keeps others out also waits for CPU time
// meanwhile, which the time of the item includes (the method of surrogates: Jacobson and Lazowska, 1982).
func (m Machine) solve(c Cost, p *Profile, s Setting) Prediction {
	n, items := float64(s.Users), float64(s.Items)
	seen := (n - 1) / n
	share := p.serialShare()
	fixed := c.Serial + c.RoundTrips*s.AddedRTT.Seconds() + c.Flushes*s.AddedFlush.Seconds()
	delay := max(0, p.RoundTrips-c.RoundTrips)*s.AddedRTT.Seconds() + max(0, p.Flushes-c.Flushes)*s.AddedFlush.Seconds()
	var (
		queue      = n / 2 / items // users who sell an item or wait for it
		throughput = 0.0           // sales per second
		times      = alone(c)
		result     Prediction
	)
	const rounds, damping, precise = 5000, 0.1, 1e-5
	for range rounds {
		serial, outside := fixed, delay
		for _, station := range Stations { // in order: sums of floats depend on it
			need, inside := c.CPU[station], 0.0
			if station == MySQL || station == Redis {
				inside = share * need
			}
			serial += inside * times[station].perCPU()
			outside += (need - inside) * times[station].perCPU()
		}
		there := serial * (1 + queue*seen) // waiting for the item, and selling it
		next := n / (outside + there)
		step := damping * (next - throughput)
		throughput += step
		queue += damping * (throughput*there/items - queue)
		m.slowDown(times, c, s, throughput*seen, damping)
		result = Prediction{Goodput: throughput, Latency: outside + there, Bottleneck: bottleneck(times, c, there-serial)}
		if math.Abs(step) < precise*damping*throughput {
			break
		}
	}
	return result
}

// A slowness is how long a sale stays at a station, as a multiple of its CPU time there.
type slowness struct {
	thread float64 // time that a thread runs per CPU time, because cores are shared or limited
	queue  float64 // time at the station per time that a thread runs, because threads are limited
}

func (s slowness) perCPU() float64 { return s.thread * s.queue }

func alone(c Cost) map[Station]slowness {
	times := map[Station]slowness{}
	for station := range c.CPU {
		times[station] = slowness{thread: 1, queue: 1}
	}
	return times
}

// slowDown moves the slowness of all stations towards that of a throughput.
func (m Machine) slowDown(times map[Station]slowness, c Cost, s Setting, throughput, damping float64) {
	users := float64(s.Users) // no station ever has more of them
	running := 0.0            // threads that have a core or wait for one
	for _, station := range Stations {
		running += throughput * c.CPU[station] * times[station].thread
	}
	for station, need := range c.CPU {
		t := times[station]
		thread, queue := 1.0, 1.0
		if m.Cores > 0 {
			thread = slow(min(running, users), m.Cores)
		}
		if cores, limited := s.Cores[station]; limited {
			jobs := min(throughput*need*t.thread, users)
			if m.Cores > 0 {
				thread = max(thread, capped(jobs, cores))
			} else {
				thread = max(thread, slow(jobs, cores))
			}
		}
		if station == Redis {
			queue = slow(min(throughput*need*t.perCPU(), users), redisThreads)
		}
		t.thread += damping * (thread - t.thread)
		t.queue += damping * (queue - t.queue)
		times[station] = t
	}
}

// redisThreads is how many threads of Redis execute commands.
const redisThreads = 1

// slow is how many times as long work takes if, on average, so many jobs run or wait at so many servers. It is exact
// for M/M/1, and within 5 % of Erlang's formula for M/M/c.
func slow(jobs, servers float64) float64 {
	p := math.Sqrt(max(1, servers))
	return math.Pow(1+math.Pow(jobs/servers, p), 1/p)
}

// capped is slow for processes that share a Quota. They run undisturbed until they have used it up.
func capped(jobs, cores float64) float64 {
	const sharp = 8
	return math.Pow(1+math.Pow(jobs/cores, sharp), 1.0/sharp)
}

// item is the bottleneck if a sale waits longest for its turn at the item.
const item = "the item"

// bottleneck is what a sale waits for longest.
func bottleneck(times map[Station]slowness, c Cost, waiting float64) string {
	name, longest := item, waiting
	for _, station := range Stations {
		if wait := c.CPU[station] * (times[station].perCPU() - 1); wait > longest {
			name, longest = string(station), wait
		}
	}
	return name
}
