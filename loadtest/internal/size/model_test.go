package size

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// The exact solutions are those of mean value analysis (Reiser and Lavenberg, 1980) and of Erlang.
func TestPredictionsAreCloseToExactSolutions(t *testing.T) {
	exact := func(users int, think, service float64) (throughput float64) {
		queue := 0.0
		for n := 1; n <= users; n++ {
			wait := service * (1 + queue)
			throughput = float64(n) / (think + wait)
			queue = throughput * wait
		}
		return throughput
	}
	for _, users := range []int{1, 4, 16, 64} {
		p := &Profile{RoundTrips: 1, Costs: []Cost{{Users: 1, Serial: 0.001, CPU: map[Station]float64{}}}}
		s := Setting{Users: users, Items: 1, Replicas: 1, AddedRTT: 10 * time.Millisecond}
		got, want := p.Predict(Machine{}, s).Goodput, exact(users, 0.010, 0.001)
		if off := math.Abs(got/want - 1); off > 0.06 {
			t.Errorf("%d users of one item: %.1f sales/s, want %.1f", users, got, want)
		}
	}
}

// The exact times are those of Erlang's formula for M/M/c.
func TestSlownessIsCloseToErlangsFormula(t *testing.T) {
	for _, servers := range []int{1, 2, 4, 8, 32} {
		for _, utilization := range []float64{0.3, 0.6, 0.9, 0.95} {
			offered := float64(servers) * utilization
			term, sum := 1.0, 0.0 // offered^k / k!
			for k := range servers {
				sum += term
				term *= offered / float64(k+1)
			}
			waits := term / (1 - utilization) / (sum + term/(1-utilization))
			want := 1 + waits/(float64(servers)*(1-utilization))
			if got := slow(offered*want, float64(servers)); math.Abs(got/want-1) > 0.05 {
				t.Errorf("%d servers, utilization %v: %.2f times as long, want %.2f", servers, utilization, got, want)
			}
		}
	}
}

func TestCoresLimitTheGoodput(t *testing.T) {
	cpu := map[Station]float64{Service: 0.001, MySQL: 0.0005}
	p := &Profile{Costs: []Cost{{Users: 1, CPU: cpu, Apart: cpu}}}
	s := Setting{Items: 1, Replicas: 2}
	for _, test := range []struct {
		name  string
		host  Machine
		cores map[Station]float64
		users int
		want  float64 // sales per second
		by    string
	}{
		{"two shared", Machine{Cores: 2}, nil, 500, 2 / 0.0015, string(Service)},
		{"a quarter for MySQL", Machine{Cores: 2}, map[Station]float64{MySQL: 0.25}, 500, 0.25 / 0.0005, string(MySQL)},
		{"two for the service", Machine{}, map[Station]float64{Service: 2}, 500, 2 / 0.001, string(Service)},
		{"many users", Machine{}, map[Station]float64{Service: 2}, 12_800, 2 / 0.001, string(Service)},
	} {
		s.Cores, s.Users = test.cores, test.users
		got := p.Predict(test.host, s)
		if math.Abs(got.Goodput/test.want-1) > 0.05 || got.Bottleneck != test.by {
			t.Errorf("%s: %.0f sales/s limited by %s, want %.0f by %s",
				test.name, got.Goodput, got.Bottleneck, test.want, test.by)
		}
	}
}

func TestAResidualDoesNotLiftTheGoodputAboveTheCores(t *testing.T) {
	cpu := map[Station]float64{Service: 0.001, Redis: 0.0004}
	p := &Profile{Costs: []Cost{{Users: 1, CPU: cpu, Apart: cpu, Residual: 1}}}
	s := Setting{Users: 500, Items: 1, Replicas: 2, Cores: map[Station]float64{Service: 2}}
	if got := p.Predict(Machine{}, s).Goodput; math.Abs(got-2000) > 1e-6 {
		t.Errorf("%.0f sales/s, want the 2,000 that two cores of the service allow", got)
	}
	s.Cores = nil
	if got := p.Predict(Machine{}, s).Goodput; math.Abs(got-2500) > 1e-6 {
		t.Errorf("%.0f sales/s, want the 2,500 that the thread of Redis allows", got)
	}
}

func TestCPUTimeDependsOnItemsAndReplicas(t *testing.T) {
	cost := Cost{Users: 64, CPU: map[Station]float64{Service: 0.001}, Apart: map[Station]float64{Service: 0.004}}
	p := &Profile{
		Costs:   []Cost{cost},
		Factors: []Factors{{Replicas: 2}, {Replicas: 4, Users: 64, CPU: map[Station]float64{Service: 1.2}}},
	}
	for _, test := range []struct {
		users, items, replicas int
		want                   float64
	}{
		{64, 1, 2, 0.001}, {64, 16, 2, 0.0025}, {64, 256, 2, 0.004}, {64, 1000, 2, 0.004}, {1, 8, 2, 0.004},
		{64, 1, 1, 0.001}, {64, 1, 4, 0.0012}, {64, 1, 8, 0.0012},
	} {
		got := p.at(Setting{Users: test.users, Items: test.items, Replicas: test.replicas}).CPU[Service]
		if !(math.Abs(got-test.want) < 1e-9) {
			t.Errorf("%+v: %v s", test, got)
		}
	}
}

func TestASaleNeedsMoreCPUTimeWhenLittleIsSold(t *testing.T) {
	c := Cost{
		CPU: map[Station]float64{Service: 0.001}, Rate: 1000, Slow: map[Station]float64{Service: 3}, RateSlow: 10,
	}
	for sales, want := range map[float64]float64{0: 0.003, 5: 0.003, 10: 0.003, 100: 0.002, 1000: 0.001, 2000: 0.001} {
		needs := map[Station]float64{}
		if c.needs(sales, nil, needs); math.Abs(needs[Service]-want) > 1e-9 {
			t.Errorf("%v sales/s: %v s, want %v", sales, needs[Service], want)
		}
		limit, half := map[Station]float64{Service: sales * 0.001}, (want+0.001)/2
		if c.needs(sales, limit, needs); sales > 0 && math.Abs(needs[Service]-half) > 1e-9 {
			t.Errorf("%v sales/s at the limit of cores: %v s, want %v", sales, needs[Service], half)
		}
	}
}

// lock is a made-up strategy with four round trips, three of them under a lock, and two flushes.
func lock() *Profile {
	p := &Profile{Strategy: "lock", RoundTrips: 4, Flushes: 2, Inside: 3}
	cpu := map[Station]float64{Load: 30e-6, Nginx: 20e-6, Service: 80e-6, MySQL: 120e-6, Redis: 10e-6}
	for _, users := range Levels {
		p.Costs = append(p.Costs, Cost{Users: users, Serial: 0.0004, RoundTrips: 3, Flushes: 2, CPU: cpu, Apart: cpu})
	}
	return p
}

func TestAFitFindsTheCosts(t *testing.T) { testFit(t, lock()) }

func TestAFitFindsThatSalesOverlap(t *testing.T) {
	made := lock()
	for i := range made.Costs {
		made.Costs[i].Serial, made.Costs[i].Overlap = 0, 0.4
	}
	fitted := testFit(t, made)
	for _, c := range fitted.Costs {
		if math.Abs(c.Overlap-0.4) > 0.1 || math.Abs(c.Residual) > 0.02 {
			t.Errorf("%d users: an overlap of %.2f with a residual of %.3f, want 0.4 without", c.Users, c.Overlap, c.Residual)
		}
	}
}

// testFit fits a profile to samples without noise of the one that was made, and compares their predictions.
func testFit(t *testing.T, made *Profile) (fitted *Profile) {
	t.Helper()
	fitted = &Profile{Strategy: made.Strategy}
	for _, s := range Calibrations() {
		fitted.Samples = append(fitted.Samples, Sample{
			Setting: s, Goodput: made.Predict(Host(), s).Goodput, CPU: made.Costs[0].CPU,
		})
	}
	fitted.Fit(Host())
	for _, s := range TestSettings(true) {
		want, got := made.Predict(Host(), s).Goodput, fitted.Predict(Host(), s).Goodput
		if math.Abs(got/want-1) > 0.05 {
			t.Errorf("%v: %.0f sales/s, want %.0f", s, got, want)
		}
	}
	return fitted
}

func TestMoreItemsNeverLeadToFarFewerSales(t *testing.T) {
	p := lock()
	for i := range p.Costs {
		p.Costs[i].Serial, p.Costs[i].Flushes = 0, 0
	}
	for _, users := range []int{40, 52, 78, 109} {
		last := 0.0
		for items := 1; items <= 64; items++ {
			got := p.Predict(Host(), Setting{Users: users, Items: items, Replicas: usualReplicas}).Goodput
			if got < 0.97*last {
				t.Errorf("%d users, %d items: %.0f sales/s, but %.0f with one item less", users, items, got, last)
			}
			last = got
		}
	}
}

func TestNoisySamplesLeadToFinitePredictions(t *testing.T) {
	for seed := range uint64(3) {
		random := rand.New(rand.NewPCG(seed, 57))
		made, noisy := lock(), &Profile{}
		for _, s := range Calibrations() {
			cpu := map[Station]float64{Load: 1e-6, Nginx: 20e-6, Service: 20e-6, Redis: 40e-6 / float64(s.Users)}
			sample := Sample{Setting: s, CPU: cpu}
			sample.Goodput = made.Predict(Host(), s).Goodput * (0.5 + random.Float64())
			noisy.Samples = append(noisy.Samples, sample)
		}
		noisy.Fit(Host())
		for _, s := range noisy.Samples {
			got := noisy.Predict(Host(), s.Setting).Goodput
			if s.AddedRTT == 0 && s.AddedFlush == 0 && s.Users > 1 && math.Abs(got/s.Goodput-1) > 1e-6 {
				t.Errorf("seed %d, %v: %.0f sales/s are predicted, %.0f were measured", seed, s.Setting, got, s.Goodput)
			}
		}
		for _, s := range TestSettings(true) {
			if got := noisy.Predict(Host(), s).Goodput; !(got > 0) || math.IsInf(got, 0) {
				t.Errorf("seed %d, %v: %v sales/s", seed, s, got)
			}
		}
	}
}

func TestAnAnswerHasTheCoresThatItsGoodputNeeds(t *testing.T) {
	q := Question{Sales: 300, Setting: Setting{Items: 1, Replicas: 2, AddedRTT: 100 * time.Microsecond}}
	a := lock().Answer(q)
	if !a.Possible() {
		t.Fatalf("%v sales/s are not possible, the limit is %.0f", q.Sales, a.Limit)
	}
	s := q.Setting
	s.Users, s.Cores = a.Users, a.Cores
	if got := lock().onTarget().Predict(target, s).Goodput; got < q.Sales {
		t.Errorf("with what the answer says, %.0f sales/s, want %v", got, q.Sales)
	}
	if a.Cores[Load] != 0 {
		t.Errorf("the load needs no cores of the target, but has %v", a.Cores[Load])
	}
}

func TestAnAnswerNeedsNoCoresOfAStationThatIsNotUsed(t *testing.T) {
	p := lock()
	p.Costs[0].CPU[Redis] = 0 // all costs share the map
	a := p.Answer(Question{Sales: 100, Setting: Setting{Items: 1, Replicas: 2}})
	if a.Users != 1 || a.Cores[Redis] != 0 {
		t.Errorf("100 sales/s need %d users and %v cores for Redis, want 1 and 0", a.Users, a.Cores[Redis])
	}
}

func TestAnImpossibleGoodputHasALimit(t *testing.T) {
	q := Question{Sales: 100_000, Setting: Setting{Items: 1, Replicas: 2, AddedFlush: 5 * time.Millisecond}}
	a := lock().Answer(q)
	if a.Possible() || a.Limit > 100 || a.LimitedBy != "commits" {
		t.Errorf("possible %v, limit %.0f by %s; two flushes of 5 ms allow for less than 100",
			a.Possible(), a.Limit, a.LimitedBy)
	}
	q.Items = 100
	if more := lock().Answer(q); more.Limit < 20*a.Limit {
		t.Errorf("100 items allow for %.0f sales/s, one item for %.0f", more.Limit, a.Limit)
	}
}

func TestErrorsAreThoseOfTheStrategy(t *testing.T) {
	tests := []Test{
		{Strategy: "a", Predicted: 110, Measured: 100}, {Strategy: "a", Predicted: 70, Measured: 100},
		{Strategy: "a", Predicted: 100, Measured: 100}, {Strategy: "b", Predicted: 900, Measured: 100},
		{Strategy: "c", Predicted: 1},
	}
	e, ok := ErrorsOf(tests, "a")
	if !ok || math.Abs(e.Median-0.1) > 1e-9 || math.Abs(e.Worst-0.3) > 1e-9 || e.WorstTest.Predicted != 70 {
		t.Errorf("%+v, want a median of 0.1 and at worst 0.3", e)
	}
	if _, ok := ErrorsOf(tests, "c"); ok {
		t.Error("a prediction that was not measured counts as tested")
	}
}
