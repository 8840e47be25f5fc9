package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"stock/internal/stats"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/verify"
)

// Sweep describes how the speed of each strategy changes along one axis: the data of a chart with a curve per strategy.
type Sweep struct {
	Axis   string   `json:"axis"`   // users, hold, goods or replicas
	Values []string `json:"values"` // ascending, as the user writes them: 8, 2ms
	Curves []*Curve `json:"curves"` // by workload and replicas; of these, the fastest at the first value comes first
	// Crossovers are the places where one strategy falls below another, as far as they are significant.
	Crossovers []Crossover `json:"crossovers"`
}

// Curve is one strategy under one workload, at every value.
type Curve struct {
	Strategy string  `json:"strategy"`
	Store    string  `json:"store"`
	Workload string  `json:"workload"`
	Replicas int     `json:"replicas,omitempty"` // 0 if they are the axis
	Baseline bool    `json:"baseline"`
	Points   []Point `json:"points"` // by value, without those that were not run
}

// Point is what a chart needs of a row.
type Point struct {
	Value    string          `json:"value"`
	At       int64           `json:"at"`         // the value as a number: users, milliseconds of hold, items, replicas
	RatePerS float64         `json:"rate_per_s"` // goodput, or the baseline's throughput; the mean over the rounds
	Interval *stats.Interval `json:"interval,omitempty"`
	// RatioToFirst is the mean of the ratios to the rounds of the same number at the first value. It is nil at the first
	// value, and if nothing can be compared.
	RatioToFirst  *float64        `json:"ratio_to_first,omitempty"`
	RatioInterval *stats.Interval `json:"ratio_interval,omitempty"`
	Result        verify.Result   `json:"verdict"`
	ClaimHeld     bool            `json:"claim_held"`
	Untested      bool            `json:"untested,omitempty"`

	row *Row
}

// markUntested marks the rows of a sweep in which hardly any requests raced, such as those of a single user. Their
// claim is neither held nor broken, provided that another value put the strategy to the test.
func (r *Report) markUntested() {
	for _, row := range r.Rows {
		row.Untested = row.Sweep != "" && row.Uncontended && slices.ContainsFunc(r.Rows, func(other *Row) bool {
			return other.curve() == row.curve() && !other.Uncontended
		})
	}
}

// curve returns what the rows of a curve have in common.
func (r *Row) curve() history.Subject {
	c := history.Subject{
		Strategy: r.Strategy, Store: r.Store, Replicas: r.Replicas, Workload: history.Workload{Name: r.Workload.Name},
	}
	if r.Sweep == history.AxisReplicas {
		c.Replicas = 0
	}
	return c
}

// sweep arranges the ranked rows in curves; nil if nothing was swept.
func (r *Report) sweep() *Sweep {
	s := &Sweep{Crossovers: []Crossover{}}
	curves := map[history.Subject]*Curve{}
	var places []int64
	for _, row := range r.Rows {
		if row.Sweep == "" {
			continue
		}
		s.Axis = row.Sweep
		curve := row.curve()
		c := curves[curve]
		if c == nil {
			c = &Curve{
				Strategy: curve.Strategy, Store: curve.Store, Workload: curve.Workload.Name, Replicas: curve.Replicas,
				Baseline: row.Baseline,
			}
			curves[curve] = c
			s.Curves = append(s.Curves, c)
		}
		c.Points = append(c.Points, row.point())
		places = append(places, row.At())
	}
	if s.Axis == "" {
		return nil
	}
	slices.Sort(places)
	places = slices.Compact(places)
	for _, at := range places {
		s.Values = append(s.Values, history.Value(s.Axis, at))
	}
	for _, c := range s.Curves {
		c.compareToFirst(s.Values[0])
	}
	s.sortCurves(r.Rows)
	s.findCrossovers(places)
	return s
}

func (r *Row) point() Point {
	p := Point{
		Value: history.Value(r.Sweep, r.At()), At: r.At(), RatePerS: r.RatePerS(), Interval: r.GoodputInterval,
		Result: r.Result, ClaimHeld: r.ClaimHeld, Untested: r.Untested, row: r,
	}
	if r.Baseline {
		var rates []float64
		for _, rate := range r.rates() {
			rates = append(rates, rate)
		}
		if _, interval := stats.Mean(rates); interval != nil {
			p.Interval = rounded3(interval)
		}
	}
	return p
}

// compareToFirst sorts the points, and compares each with the one at the first value of the sweep.
func (c *Curve) compareToFirst(value string) {
	slices.SortFunc(c.Points, func(a, b Point) int { return cmp.Compare(a.At, b.At) })
	if c.Points[0].Value != value {
		return
	}
	for i := range c.Points[1:] {
		p := &c.Points[i+1]
		if ratio := speedRatio(p.row, c.Points[0].row); ratio.mean > 0 {
			mean := round3(ratio.mean)
			p.RatioToFirst, p.RatioInterval = &mean, ratio.interval
		}
	}
}

// sortCurves keeps the workloads in the order of the rows.
func (s *Sweep) sortCurves(rows []*Row) {
	workloads := map[string]int{}
	for _, row := range rows {
		if _, found := workloads[row.Workload.Name]; !found {
			workloads[row.Workload.Name] = len(workloads)
		}
	}
	last := map[bool]int{true: 1}
	slices.SortStableFunc(s.Curves, func(a, b *Curve) int {
		return cmp.Or(
			cmp.Compare(workloads[a.Workload], workloads[b.Workload]),
			cmp.Compare(b.Replicas, a.Replicas),
			cmp.Compare(last[a.Baseline], last[b.Baseline]),
			cmp.Compare(b.Points[0].RatePerS, a.Points[0].RatePerS))
	})
}

// point finds a curve's point; nil if it was not run.
func (c *Curve) point(value string) *Point {
	for i := range c.Points {
		if c.Points[i].Value == value {
			return &c.Points[i]
		}
	}
	return nil
}

// meanRatio is a mean over the rounds (see stats.Mean), with its interval if there is one.
type meanRatio struct {
	mean     float64
	interval *stats.Interval
}

// speedRatio returns how many times as fast one row is as another, by the rounds of the same number.
func speedRatio(of, as *Row) meanRatio {
	mean, interval := stats.Mean(stats.Ratios(of.rates(), as.rates()))
	return meanRatio{mean: mean, interval: rounded3(interval)}
}

// Label names a curve, with its store only if another curve has the same strategy.
func (s *Sweep) Label(c *Curve) string {
	for _, other := range s.Curves {
		if other.Strategy == c.Strategy && other.Store != c.Store {
			return c.Strategy + "@" + c.Store
		}
	}
	return c.Strategy
}

// Groups are the curves that share a table.
func (s *Sweep) Groups() (groups [][]*Curve) {
	for i, c := range s.Curves {
		if i == 0 || c.Workload != s.Curves[i-1].Workload || c.Replicas != s.Curves[i-1].Replicas {
			groups = append(groups, nil)
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], c)
	}
	return groups
}

// Title is the heading of a table of curves.
func (s *Sweep) Title(group []*Curve) string {
	parts := []string{group[0].Workload, "goodput/s by " + s.Axis}
	if n := group[0].Replicas; n > 0 {
		parts = append(parts, plural(n, "replica"))
	}
	return strings.Join(parts, " · ")
}

// ratio is the ratio to the first value, or "~" if its interval includes 1.
func (p *Point) ratio() string {
	switch {
	case p.RatioToFirst == nil:
		return ""
	case p.RatioInterval != nil && p.RatioInterval.Low <= 1 && p.RatioInterval.High >= 1:
		return "~"
	}
	return fmt.Sprintf("%.2f×", *p.RatioToFirst)
}

// mark is what a reader must know about a point besides its speed: that it is not correct, or was not tested.
func (p *Point) mark(baseline bool) string {
	switch {
	case p.Untested:
		return "untested"
	case baseline && p.ClaimHeld:
		return ""
	case p.Result != verify.Correct:
		return string(p.Result)
	case !p.ClaimHeld:
		return "not held"
	}
	return ""
}
