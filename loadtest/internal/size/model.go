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
	// The same if two users seldom want the same item. Both depend on the number of users because a busy process is woken
	// less often, and then reads and writes more at once.
	Apart map[Station]float64 `json:"apart"`
	// Rate and RateApart are the sales per second with which these were measured.
	Rate      float64 `json:"rate"`
	RateApart float64 `json:"rate_apart"`
	// A sale needs more CPU time while little is sold, because processes then sleep and are woken for each message. Slow
	// is how much more at RateSlow, as a factor.
	Slow     map[Station]float64 `json:"slow,omitempty"`
	RateSlow float64             `json:"rate_slow,omitempty"`
	// Serial is how long a sale keeps others from selling the same item, in seconds, not counting CPU time. All sales of
	// a batch share one such time.
	Serial float64 `json:"serial"`
	// Overlap is the share of serialShare in which others sell the same item nevertheless, for instance from another of
	// its rows.
	Overlap float64 `json:"overlap,omitempty"`
	// RoundTrips and Flushes are how many of each are in the time that a sale keeps others out.
	RoundTrips float64 `json:"round_trips"`
	Flushes    float64 `json:"flushes"`
	// Residual is what the model does not explain: the logarithm of the measured goodput divided by the computed one. As
	// with the CPU time, there is one for users who all want the same item, and one for users who seldom do.
	Residual      float64 `json:"residual"`
	ResidualApart float64 `json:"residual_apart"`
}

// Factors correct a Cost for another number of replicas.
type Factors struct {
	Replicas int                 `json:"replicas"` // with which they were measured
	Users    int                 `json:"users"`
	CPU      map[Station]float64 `json:"cpu"`      // multiplies that of the Cost
	Residual float64             `json:"residual"` // is added to that of the Cost
}

// A Profile is what was measured of a strategy.
type Profile struct {
	Strategy   string    `json:"strategy"`
	Costs      []Cost    `json:"costs"`   // by Users
	RoundTrips float64   `json:"rtts"`    // round trips of a sale that nobody else keeps waiting
	Flushes    float64   `json:"flushes"` // flushes of such a sale
	Inside     float64   `json:"inside"`  // round trips while a sale keeps many others out
	Middle     float64   `json:"middle"`  // residual with someItems, less what Residual and ResidualApart interpolate to
	FlushTime  float64   `json:"flush"`   // how long a flush took, in seconds
	Factors    []Factors `json:"factors"` // by replicas, and then by users
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

// serialShare is the share of a sale's CPU time at a station that falls into the time for which it keeps others out. If
// that time has k round trips, MySQL and Redis execute k+1 of its RoundTrips statements in it. The service and the
// proxies of the load handle k of RoundTrips+2 replies: the client's request and the answer count as one each.
func (p *Profile) serialShare(station Station) float64 {
	switch {
	case p.RoundTrips == 0:
		return 0
	case station == MySQL || station == Redis:
		return min(1, (p.Inside+1)/p.RoundTrips)
	case station == Service || station == Load:
		return p.Inside / (p.RoundTrips + 2)
	}
	return 0
}

// serialCPU is the CPU time of a sale that falls into the time for which it keeps others out, if none overlap.
func (p *Profile) serialCPU(c Cost) (sum float64) {
	for _, station := range Stations {
		sum += p.serialShare(station) * c.CPU[station]
	}
	return sum
}

// sameness is 1 if all users want the same item, 0 if there are at least itemsEach times as many items as users, and in
// between linear in the logarithm of the users per item.
func sameness(s Setting) float64 {
	if s.Items == 1 {
		return 1
	}
	users := float64(s.Users)
	return max(0, math.Log(itemsEach*users/float64(s.Items))/math.Log(itemsEach*users))
}

// at returns the costs in a setting. The times for which a sale keeps others out depend on the users per item. The CPU
// time lies between CPU and Apart, as sameness says.
func (p *Profile) at(s Setting) Cost {
	users := float64(s.Users)
	c, all, same := p.between(users/float64(s.Items)), p.between(users), sameness(s)
	c.CPU = map[Station]float64{}
	for station, apart := range all.Apart {
		c.CPU[station] = (apart + same*(all.CPU[station]-apart)) * p.factor(s, func(f Factors) float64 {
			if v, ok := f.CPU[station]; ok {
				return v
			}
			return 1
		})
	}
	middle := sameness(Setting{Users: someUsers, Items: someItems})
	c.Slow, c.RateSlow = all.Slow, all.RateSlow
	c.Rate = all.RateApart * math.Pow(all.Rate/all.RateApart, same)
	c.Residual = all.ResidualApart + same*(all.Residual-all.ResidualApart) +
		p.Middle*min(same/middle, (1-same)/(1-middle)) +
		p.factor(s, func(f Factors) float64 { return f.Residual })
	return c
}

// factor interpolates one of the factors linearly in the logarithms of the numbers of replicas and users.
func (p *Profile) factor(s Setting, of func(Factors) float64) float64 {
	var replicas, factors []float64 // for the users of the setting
	for i := 0; i < len(p.Factors); {
		var users, values []float64
		r := p.Factors[i].Replicas
		for ; i < len(p.Factors) && p.Factors[i].Replicas == r; i++ {
			users, values = append(users, float64(p.Factors[i].Users)), append(values, of(p.Factors[i]))
		}
		replicas, factors = append(replicas, float64(r)), append(factors, interpolate(float64(s.Users), users, values))
	}
	if len(factors) == 0 {
		return of(Factors{})
	}
	return interpolate(float64(s.Replicas), replicas, factors)
}

// interpolate is linear in the logarithm of x. Beyond the xs, which are in ascending order, it is constant.
func interpolate(x float64, xs, ys []float64) float64 {
	i := slices.IndexFunc(xs, func(at float64) bool { return at >= x })
	switch {
	case i < 0:
		return ys[len(ys)-1]
	case i == 0:
		return ys[0]
	}
	return ys[i-1] + math.Log(x/xs[i-1])/math.Log(xs[i]/xs[i-1])*(ys[i]-ys[i-1])
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
		CPU: map[Station]float64{}, Apart: map[Station]float64{}, Slow: map[Station]float64{},
		Rate: mix(a.Rate, b.Rate), RateApart: mix(a.RateApart, b.RateApart), RateSlow: mix(a.RateSlow, b.RateSlow),
		Serial: mix(a.Serial, b.Serial), Overlap: mix(a.Overlap, b.Overlap),
		RoundTrips: mix(a.RoundTrips, b.RoundTrips), Flushes: mix(a.Flushes, b.Flushes),
		Residual: mix(a.Residual, b.Residual), ResidualApart: mix(a.ResidualApart, b.ResidualApart),
	}
	for station := range a.CPU {
		c.CPU[station] = mix(a.CPU[station], b.CPU[station])
		c.Apart[station] = mix(a.Apart[station], b.Apart[station])
		c.Slow[station] = mix(a.slowFactor(station), b.slowFactor(station))
	}
	return c
}

// slowFactor is the factor of the CPU time at RateSlow.
func (c Cost) slowFactor(station Station) float64 {
	if f, known := c.Slow[station]; known {
		return f
	}
	return 1
}

// needs stores in dst the CPU time of a sale at each station if so much is sold per second. Below Rate, it grows with
// the logarithm of the rate, up to Slow times as much. A station at its limit of cores is stopped and started instead
// of sleeping, and was measured to need about half of this extra time.
func (c Cost) needs(sales float64, cores, dst map[Station]float64) {
	idle := 0.0
	if c.RateSlow > 0 && c.RateSlow < c.Rate {
		idle = min(1, max(0, math.Log(c.Rate/sales)/math.Log(c.Rate/c.RateSlow)))
	}
	for station, need := range c.CPU {
		more := idle * (c.slowFactor(station) - 1)
		if limit, limited := cores[station]; limited {
			more *= 1 - min(1, sales*need/limit)/2
		}
		dst[station] = need * (1 + more)
	}
}

// Predict computes the goodput of a strategy in a setting.
func (p *Profile) Predict(m Machine, s Setting) Prediction {
	c := p.at(s)
	computed := m.solve(c, p, s)
	sales := computed.Goodput * math.Exp(c.Residual)
	for station, need := range c.CPU { // a residual must not lift the goodput above what a station can do
		cores, limited := s.Cores[station]
		if station == Redis {
			cores, limited = redisThreads, true
		}
		if limited && need > 0 {
			sales = min(sales, cores/need)
		}
	}
	computed.Latency *= computed.Goodput / sales
	computed.Goodput = sales
	return computed
}

// solve repeats the approximate mean value analysis of Schweitzer (1979) until the throughput and the queue are stable:
// a user who arrives somewhere finds (n-1)/n of the mean queue. Two things are not in the textbook model. Stations slow
// each other down where they share cores. And a sale that keeps others out also waits for CPU time meanwhile, which the
// time of the item includes (the method of surrogates: Jacobson and Lazowska, 1982).
func (m Machine) solve(c Cost, p *Profile, s Setting) Prediction {
	n, items := float64(s.Users), float64(s.Items)
	seen := (n - 1) / n
	fixed := c.Serial + c.RoundTrips*s.AddedRTT.Seconds() + c.Flushes*s.AddedFlush.Seconds()
	delay := max(0, p.RoundTrips-c.RoundTrips)*s.AddedRTT.Seconds() + max(0, p.Flushes-c.Flushes)*s.AddedFlush.Seconds()
	var (
		queue      = n / 2 / items // users who sell an item or wait for it
		throughput = 0.0           // sales per second
		times      = alone(c)
		needs      = map[Station]float64{}
		result     Prediction
	)
	const rounds, damping, precise = 5000, 0.1, 1e-5
	for range rounds {
		c.needs(throughput, s.Cores, needs)
		serial, outside := fixed, delay
		for _, station := range Stations { // in order: sums of floats depend on it
			need := needs[station]
			inside := (1 - c.Overlap) * p.serialShare(station) * need
			serial += inside * times[station].perCPU()
			outside += (need - inside) * times[station].perCPU()
		}
		there := serial * (1 + queue*seen) // waiting for the item, and selling it
		next := n / (outside + there)
		step := damping * (next - throughput)
		throughput += step
		join := damping * (throughput*there/items - queue)
		queue += join
		m.slowDown(times, needs, s, throughput*seen, damping)
		result = Prediction{Goodput: throughput, Latency: outside + there, Bottleneck: bottleneck(times, needs, there-serial)}
		if math.Abs(step) < precise*damping*throughput && math.Abs(join) < precise*damping*max(queue, 1) {
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
func (m Machine) slowDown(
	times map[Station]slowness, needs map[Station]float64, s Setting, throughput, damping float64,
) {
	users := float64(s.Users) // no station ever has more of them
	running := 0.0            // threads that have a core or wait for one
	for _, station := range Stations {
		running += throughput * needs[station] * times[station].thread
	}
	for station, need := range needs {
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
func bottleneck(times map[Station]slowness, needs map[Station]float64, waiting float64) string {
	name, longest := item, waiting
	for _, station := range Stations {
		if wait := needs[station] * (times[station].perCPU() - 1); wait > longest {
			name, longest = string(station), wait
		}
	}
	return name
}
