package size

import (
	"math"
	"slices"
)

// A Cost is what a sale costs a strategy while so many users want the same item.
type Cost struct {
	Users int `json:"users"` // per item
	// CPU time at each station, in seconds.
	CPU map[Station]float64 `json:"cpu"`
	// Serial is for how long a sale keeps others from selling the same item, in seconds, without the CPU time that it
	// needs meanwhile. A batch counts once for all its sales.
	Serial float64 `json:"serial"`
	// RoundTrips and Flushes are how many of each are in the time that a sale keeps others out.
	RoundTrips float64 `json:"round_trips"`
	Flushes    float64 `json:"flushes"`
}

// A Profile is what was measured of a strategy.
type Profile struct {
	Strategy string   `json:"strategy"`
	Costs    []Cost   `json:"costs"`   // by Users
	RTTs     float64  `json:"rtts"`    // round trips of a sale that nobody else keeps waiting
	Flushes  float64  `json:"flushes"` // flushes of such a sale
	Inside   float64  `json:"inside"`  // round trips while a sale keeps many others out
	Flush    float64  `json:"flush"`   // how long a flush took, in seconds
	Samples  []Sample `json:"samples"` // what the profile was computed from
}

// A Machine is where the stations run.
type Machine struct {
	Cores   float64             // that the stations share; 0: each has its own
	Threads map[Station]float64 // the most cores that a station can use; absent: any number
}

// A Prediction is what the model computes for a setting.
type Prediction struct {
	Goodput    float64 // sales per second
	Latency    float64 // mean, in seconds
	Bottleneck string  // where a sale spends most of its time waiting
}

// serialShare is the share of a station's CPU time that a sale needs while it keeps others out: that of the statements
// in between, of which there is one more than round trips.
func (p *Profile) serialShare() float64 {
	if p.RTTs == 0 {
		return 0
	}
	return min(1, (p.Inside+1)/p.RTTs)
}

// at returns the costs for a number of users per item, between those of the profile: linear in its logarithm.
func (p *Profile) at(users float64) Cost {
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
		CPU: map[Station]float64{}, Serial: mix(a.Serial, b.Serial),
		RoundTrips: mix(a.RoundTrips, b.RoundTrips), Flushes: mix(a.Flushes, b.Flushes),
	}
	for station := range a.CPU {
		c.CPU[station] = mix(a.CPU[station], b.CPU[station])
	}
	return c
}

// Predict computes the goodput of a strategy in a setting.
func (p *Profile) Predict(m Machine, s Setting) Prediction {
	return m.solve(p.at(float64(s.Users)/float64(s.Items)), p, s)
}

// solve finds the throughput at which all times agree, by the approximate mean value analysis of Schweitzer (1979): a
// user who arrives somewhere finds the queue that one user less would leave there. Two things are not in the textbook
// model. Stations slow each other down where they share cores. And a sale that keeps others out also waits for CPU time
// meanwhile, so that this time is longer by as much (the method of surrogates: Jacobson and Lazowska, 1982).
func (m Machine) solve(c Cost, p *Profile, s Setting) Prediction {
	n, items := float64(s.Users), float64(s.Items)
	seen := (n - 1) / n
	share := p.serialShare()
	fixed := c.Serial + c.RoundTrips*s.RTT.Seconds() + c.Flushes*s.Flush.Seconds()
	delay := max(0, p.RTTs-c.RoundTrips)*s.RTT.Seconds() + max(0, p.Flushes-c.Flushes)*s.Flush.Seconds()
	var (
		queue, throughput = n / 2 / items, 0.0 // of the users of an item; sales per second
		times             = m.alone(c)
		result            Prediction
	)
	const rounds, damping, precise = 5000, 0.1, 1e-5
	for range rounds {
		serial, outside := fixed, delay
		for station, need := range c.CPU {
			inside := 0.0
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

// A slowness is how much longer a sale is at a station than the CPU time that it needs.
type slowness struct {
	thread float64 // time that a thread runs per CPU time, because cores are shared or limited
	queue  float64 // time at the station per time that a thread runs, because threads are limited
}

func (s slowness) perCPU() float64 { return s.thread * s.queue }

func (m Machine) alone(c Cost) map[Station]slowness {
	times := map[Station]slowness{}
	for station := range c.CPU {
		times[station] = slowness{thread: 1, queue: 1}
	}
	return times
}

// slowDown moves the slowness of all stations towards that of a throughput.
func (m Machine) slowDown(times map[Station]slowness, c Cost, s Setting, throughput, damping float64) {
	running := 0.0 // threads that have a core or wait for one
	for station, need := range c.CPU {
		running += throughput * need * times[station].thread
	}
	for station, need := range c.CPU {
		t := times[station]
		thread, queue := 1.0, 1.0
		if m.Cores > 0 {
			thread = slow(running, m.Cores)
		}
		if cores, limited := s.Cores[station]; limited {
			thread = max(thread, slow(throughput*need*t.thread, cores))
		}
		if threads := m.threads(station, s); threads > 0 {
			queue = slow(throughput*need*t.perCPU(), threads)
		}
		t.thread += damping * (thread - t.thread)
		t.queue += damping * (queue - t.queue)
		times[station] = t
	}
}

// slow is how much longer work takes if so many have work for servers of which there are fewer. It is close to the
// formula of Erlang for M/M/c: exact for one server, and within 5 % for two or more.
func slow(working, servers float64) float64 {
	p := max(1, 2-1/servers)
	return math.Pow(1+math.Pow(working/servers, p), 1/p)
}

// item is the bottleneck if most users wait until an item can be sold.
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

// threads is the most cores that a station can use; 0: any number.
func (m Machine) threads(station Station, s Setting) float64 {
	if station == Service {
		return m.Threads[station] * float64(s.Replicas)
	}
	return m.Threads[station]
}
