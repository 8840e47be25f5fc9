package report

import (
	"bufio"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"stock/loadtest/internal/verify"
)

// Axes of a Sweep.
const (
	axisUsers    = "users"
	axisHold     = "hold"
	axisGoods    = "goods"
	axisReplicas = "replicas"
)

// Sweep says how the speed of each strategy changes along one axis: the data of a chart, a curve a strategy.
type Sweep struct {
	Axis   string   `json:"axis"`   // users, hold, goods or replicas
	Values []string `json:"values"` // ascending, as people write them: 8, 2ms
	Curves []*Curve `json:"curves"` // by workload and replicas; in it, the fastest at the first value on top
	// Crossovers are the places where one strategy falls below another. See significance for how sure each is.
	Crossovers []Crossover `json:"crossovers"`
}

// Curve is one strategy under one workload, at every value.
type Curve struct {
	Strategy string  `json:"strategy"`
	Store    string  `json:"store"`
	Workload string  `json:"workload"`
	Replicas int     `json:"replicas,omitempty"` // 0 where they are the axis
	Baseline bool    `json:"baseline"`
	Points   []Point `json:"points"` // by value; those that were not run are left out
}

// Point is a row of the report, as far as a chart needs it.
type Point struct {
	Value    string    `json:"value"`
	At       int64     `json:"at"`         // the value as a number: users, milliseconds of hold, goods, replicas
	RatePerS float64   `json:"rate_per_s"` // goodput; of the baseline, throughput. Median over the rounds
	Interval *Interval `json:"interval,omitempty"`
	// RatioToFirst compares the rounds with those of the same number at the first value: their geometric mean. Nil at the
	// first value, and where nothing can be compared.
	RatioToFirst  *float64      `json:"ratio_to_first,omitempty"`
	RatioInterval *Interval     `json:"ratio_interval,omitempty"`
	Result        verify.Result `json:"verdict"`
	ClaimHeld     bool          `json:"claim_held"`
	Untested      bool          `json:"untested,omitempty"`

	row *Row
}

// Crossover says that a strategy is faster than another at one value, and slower at a later one.
type Crossover struct {
	Workload string `json:"workload"`
	Replicas int    `json:"replicas,omitempty"`
	Falls    string `json:"falls"`
	Below    string `json:"below"`
	// From is the last value at which it is faster, To the first at which it is slower. Values between them do not tell.
	From string `json:"from"`
	To   string `json:"to"`
	// Before and After are the ratios of their speeds at these values.
	Before Ratio  `json:"before"`
	After  Ratio  `json:"after"`
	Text   string `json:"text"`
}

// Ratio is a geometric mean over the rounds, with its 95 % interval.
type Ratio struct {
	Mean     float64  `json:"mean"`
	Interval Interval `json:"interval"`
}

func (r Ratio) String() string {
	return fmt.Sprintf("%.2f ± %.2f×", r.Mean, (r.Interval.High-r.Interval.Low)/2)
}

// at is the row's place on the axis of its sweep.
func (r *Row) at() int64 {
	switch r.Sweep {
	case axisUsers:
		return int64(r.Users)
	case axisHold:
		return r.HoldMS
	case axisGoods:
		return int64(r.Goods)
	}
	return int64(r.Replicas)
}

// place words a place on an axis: 8 users, hold 2ms, 5 items.
func place(axis string, at int64) string {
	switch {
	case axis == axisHold:
		return "hold " + written(axis, at)
	case axis == axisGoods:
		return plural(int(at), "item")
	}
	return plural(int(at), strings.TrimSuffix(axis, "s"))
}

// written is a place as the user wrote it.
func written(axis string, at int64) string {
	if axis == axisHold && at > 0 {
		return (time.Duration(at) * time.Millisecond).String()
	}
	return strconv.FormatInt(at, 10)
}

// excuse finds the rows in which, by the sweep's design, hardly anything could race: one user at a time, or many kinds of goods.
// Their claim is neither held nor broken, provided that the strategy was put to the test at another value.
func (r *Report) excuse() {
	for _, row := range r.Rows {
		row.Untested = row.Sweep != "" && row.Uncontended && slices.ContainsFunc(r.Rows, func(other *Row) bool {
			return other.curve() == row.curve() && !other.Uncontended
		})
	}
}

// curve is what the rows of a curve have in common.
type curve struct {
	strategy, store, workload string
	replicas                  int
}

func (r *Row) curve() curve {
	if r.Sweep == axisReplicas {
		return curve{r.Strategy, r.Store, r.Workload.Name, 0}
	}
	return curve{r.Strategy, r.Store, r.Workload.Name, r.Replicas}
}

// sweep puts the rows in curves; nil where nothing was swept. The rows are ranked already.
func (r *Report) sweep() *Sweep {
	s := &Sweep{Crossovers: []Crossover{}}
	byKey := map[curve]*Curve{}
	var places []int64
	for _, row := range r.Rows {
		if row.Sweep == "" {
			continue
		}
		s.Axis = row.Sweep
		c := byKey[row.curve()]
		if c == nil {
			c = &Curve{Strategy: row.Strategy, Store: row.Store, Workload: row.Workload.Name, Replicas: row.curve().replicas, Baseline: row.Baseline}
			byKey[row.curve()] = c
			s.Curves = append(s.Curves, c)
		}
		p := Point{Value: written(row.Sweep, row.at()), At: row.at(), RatePerS: row.GoodputPerS, Interval: row.GoodputInterval,
			Result: row.Result, ClaimHeld: row.ClaimHeld, Untested: row.Untested, row: row}
		if row.Baseline {
			var rates []float64
			for _, round := range row.Rounds {
				rates = append(rates, round.ThroughputPerS)
			}
			p.RatePerS = row.ThroughputPerS
			if _, interval := geometric(rates); interval != nil {
				p.Interval = &Interval{round3(interval.Low), round3(interval.High)}
			}
		}
		c.Points = append(c.Points, p)
		places = append(places, p.At)
	}
	if s.Axis == "" {
		return nil
	}
	slices.Sort(places)
	places = slices.Compact(places)
	for _, at := range places {
		s.Values = append(s.Values, written(s.Axis, at))
	}
	for _, c := range s.Curves {
		slices.SortFunc(c.Points, func(a, b Point) int { return cmp.Compare(a.At, b.At) })
		for i := range c.Points[1:] {
			p := &c.Points[i+1]
			if mean, interval := speed(p.row, c.Points[0].row); mean > 0 && c.Points[0].Value == s.Values[0] {
				mean = round3(mean)
				p.RatioToFirst, p.RatioInterval = &mean, interval
			}
		}
	}
	// Workloads stay in the order of the rows, which have the one with the most stock first.
	workloads := map[string]int{}
	for _, row := range r.Rows {
		if _, met := workloads[row.Workload.Name]; !met {
			workloads[row.Workload.Name] = len(workloads)
		}
	}
	slices.SortStableFunc(s.Curves, func(a, b *Curve) int {
		side := map[bool]int{true: 1}
		return cmp.Or(cmp.Compare(workloads[a.Workload], workloads[b.Workload]), cmp.Compare(b.Replicas, a.Replicas),
			cmp.Compare(side[a.Baseline], side[b.Baseline]), cmp.Compare(b.Points[0].RatePerS, a.Points[0].RatePerS))
	})
	s.cross(places)
	return s
}

// speed is how many times as fast one row is as another: the geometric mean over the rounds of the same number.
func speed(of, as *Row) (mean float64, interval *Interval) {
	mean, interval = geometric(ratios(of, as))
	if interval != nil {
		interval = &Interval{round3(interval.Low), round3(interval.High)}
	}
	return mean, interval
}

// ratios are the speeds of one row over those of another, a figure for each round that both have.
func ratios(of, as *Row) (ratios []float64) {
	rate := func(row *Row, round Round) float64 {
		if row.Baseline {
			return round.ThroughputPerS
		}
		return round.GoodputPerS
	}
	for own, other := range pairs(of, as) {
		if rate(as, other) > 0 {
			ratios = append(ratios, rate(of, own)/rate(as, other))
		}
	}
	return ratios
}

// comparable says whether the point may be held against another strategy's: a wrong strategy's speed is worth nothing.
func (p Point) comparable() bool {
	return p.row.Ranked() || p.Untested && p.row.Claim == verify.PromiseCorrect && p.row.Restock == 0
}

// significance is the probability at which a sweep without any difference names one nevertheless. It holds for all
// comparisons of a sweep together (see holm): twenty strategies at four values are compared 760 times, and at 5 % each,
// chance alone would name crossovers in every other sweep. The price is that the more is compared, the more rounds it takes
// to tell a difference.
const significance = 0.05

// pair is two curves side by side.
type pair struct {
	a, b        *Curve
	differences []*difference // a place each, nil where the two cannot be compared
}

// difference is how much faster a is than b at one place.
type difference struct {
	at      int64
	faster  bool    // a is
	chance  float64 // how probable it is by chance alone
	certain bool    // it is more than chance, among all comparisons of the sweep
}

// compare puts each two curves side by side that have the load in common.
func (s *Sweep) compare(places []int64) (compared []pair) {
	var all []*difference
	for i, a := range s.Curves {
		for _, b := range s.Curves[i+1:] {
			if a.Workload != b.Workload || a.Replicas != b.Replicas {
				continue
			}
			two := pair{a: a, b: b}
			for _, at := range places {
				var d *difference
				p, q := a.at(written(s.Axis, at)), b.at(written(s.Axis, at))
				if p != nil && q != nil && p.comparable() && q.comparable() {
					d = &difference{at: at}
					d.chance, d.faster = chance(ratios(p.row, q.row))
					all = append(all, d)
				}
				two.differences = append(two.differences, d)
			}
			compared = append(compared, two)
		}
	}
	var chances []float64
	for _, d := range all {
		chances = append(chances, d.chance)
	}
	for i, certain := range holm(chances, significance) {
		all[i].certain = certain
	}
	return compared
}

// cross finds the crossovers of each pair of curves.
func (s *Sweep) cross(places []int64) {
	for _, two := range s.compare(places) {
		var before *difference
		for k, after := range two.differences {
			if after == nil || !after.certain {
				continue
			}
			if before != nil && before.faster != after.faster {
				// For good only where every later place tells the same: one that was not run, or is a tie, does not.
				forGood := !slices.ContainsFunc(two.differences[k+1:], func(later *difference) bool {
					return later == nil || !later.certain || later.faster != after.faster
				})
				s.Crossovers = append(s.Crossovers, s.crossover(two, *before, *after, forGood))
			}
			before = after
		}
	}
}

// crossover words what two differences with another sign each say.
func (s *Sweep) crossover(two pair, before, after difference, forGood bool) Crossover {
	falls, below := two.a, two.b
	if after.faster {
		falls, below = below, falls
	}
	ratio := func(at string) Ratio {
		mean, interval := speed(falls.at(at).row, below.at(at).row)
		return Ratio{round3(mean), *interval} // it has one, being certain
	}
	when := "at " + place(s.Axis, after.at)
	if forGood {
		when = fmt.Sprintf("from %s on", place(s.Axis, after.at))
	}
	c := Crossover{Workload: falls.Workload, Replicas: falls.Replicas, Falls: s.label(falls), Below: s.label(below),
		From: written(s.Axis, before.at), To: written(s.Axis, after.at)}
	c.Before, c.After = ratio(c.From), ratio(c.To)
	c.Text = fmt.Sprintf("%s, %s falls below %s: %v as fast at %s, %v at %s", when, c.Falls, c.Below,
		c.Before, place(s.Axis, before.at), c.After, place(s.Axis, after.at))
	return c
}

// label names a curve beside others: with its store only where that tells them apart.
func (s *Sweep) label(c *Curve) string {
	for _, other := range s.Curves {
		if other.Strategy == c.Strategy && other.Store != c.Store {
			return c.Strategy + "@" + c.Store
		}
	}
	return c.Strategy
}

// groups are the curves that share a table.
func (s *Sweep) groups() (groups [][]*Curve) {
	for i, c := range s.Curves {
		if i == 0 || c.Workload != s.Curves[i-1].Workload || c.Replicas != s.Curves[i-1].Replicas {
			groups = append(groups, nil)
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], c)
	}
	return groups
}

// title heads a table of curves.
func (s *Sweep) title(group []*Curve) string {
	parts := []string{group[0].Workload, "goodput/s by " + s.Axis}
	if n := group[0].Replicas; n > 0 {
		parts = append(parts, plural(n, "replica"))
	}
	return strings.Join(parts, " · ")
}

// crossed lists what a group's crossovers say.
func (s *Sweep) crossed(group []*Curve) (texts []string) {
	for _, c := range s.Crossovers {
		if c.Workload == group[0].Workload && c.Replicas == group[0].Replicas {
			texts = append(texts, c.Text)
		}
	}
	return texts
}

// at finds a curve's point; nil where it was not run.
func (c *Curve) at(value string) *Point {
	for i := range c.Points {
		if c.Points[i].Value == value {
			return &c.Points[i]
		}
	}
	return nil
}

// spread is the interval of the rate in per cent of it.
func (p *Point) spread() string {
	if p.Interval == nil || p.RatePerS == 0 {
		return ""
	}
	return fmt.Sprintf("%.0f%%", 100*(p.Interval.High-p.Interval.Low)/2/p.RatePerS)
}

// ratio words the ratio to the first value.
func (p *Point) ratio() string {
	switch {
	case p.RatioToFirst == nil:
		return ""
	case p.RatioInterval != nil && p.RatioInterval.Low <= 1 && p.RatioInterval.High >= 1:
		return "~"
	}
	return fmt.Sprintf("%.2f×", *p.RatioToFirst)
}

// mark says what a reader has to know of a point beside its speed: that the books were wrong, or that nobody can tell.
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

const shownCrossovers = 12 // on a terminal

// writeText writes a table of strategies and values for each workload, and names the crossovers.
func (s *Sweep) writeText(out *bufio.Writer, colour bool, paint func(style, string) string) {
	for i, group := range s.groups() {
		if i > 0 {
			out.WriteByte('\n')
		}
		fmt.Fprintf(out, "%s\n", paint(bold, s.title(group)))
		t := table{head: []string{"strategy"}, left: []bool{true}}
		for j, value := range s.Values {
			t.head = append(t.head, value, "±")
			t.left = append(t.left, false, false)
			if j > 0 {
				t.head, t.left = append(t.head, "×"+s.Values[0]), append(t.left, false)
			}
			t.head, t.left = append(t.head, ""), append(t.left, true)
		}
		for _, c := range group {
			line := []cell{{text: s.label(c)}}
			for j, value := range s.Values {
				var rate, spread, ratio, mark cell
				if p := c.at(value); p != nil {
					rate, spread, ratio = cell{text: grouped(p.RatePerS)}, cell{text: p.spread()}, cell{text: p.ratio()}
					mark = cell{p.mark(c.Baseline), faint}
					if !p.ClaimHeld && !p.Untested {
						mark.style = red
					}
				}
				line = append(line, rate, spread)
				if j > 0 {
					line = append(line, ratio)
				}
				line = append(line, mark)
			}
			t.rows = append(t.rows, line)
		}
		t.write(out, colour)
		texts := s.crossed(group)
		for _, text := range texts[:min(len(texts), shownCrossovers)] {
			fmt.Fprintf(out, "  %s\n", text)
		}
		if more := len(texts) - shownCrossovers; more > 0 {
			fmt.Fprintf(out, "  and %d more crossovers in the Markdown\n", more)
		}
	}
}

// writeMarkdown writes the same tables.
func (s *Sweep) writeMarkdown(out *bufio.Writer) {
	for _, group := range s.groups() {
		fmt.Fprintf(out, "\n## %s\n\n| strategy |", s.title(group))
		for _, value := range s.Values {
			fmt.Fprintf(out, " %s |", value)
		}
		fmt.Fprintf(out, "\n| --- |%s\n", strings.Repeat(" --- |", len(s.Values)))
		for _, c := range group {
			fmt.Fprintf(out, "| `%s` |", s.label(c))
			for _, value := range s.Values {
				p := c.at(value)
				if p == nil {
					out.WriteString("  |")
					continue
				}
				text := "**" + grouped(p.RatePerS) + "**"
				if p.Interval != nil {
					text += fmt.Sprintf(" (%s – %s)", grouped(p.Interval.Low), grouped(p.Interval.High))
				}
				for _, more := range []string{p.ratio(), p.mark(c.Baseline)} {
					if more != "" {
						text += "<br>" + more
					}
				}
				fmt.Fprintf(out, " %s |", text)
			}
			out.WriteByte('\n')
		}
		for i, text := range s.crossed(group) {
			if i == 0 {
				out.WriteByte('\n')
			}
			fmt.Fprintf(out, "- %s\n", escape(text))
		}
	}
	fmt.Fprintf(out, "\nMedians over the rounds with their 95 %% intervals, and the ratio to the first value; ~ where the intervals do not tell. "+
		"A crossover is named where both sides of it are certain: by chance alone, one sweep in twenty at most would name any (Holm's method, "+
		"over all comparisons of the sweep). untested: one user races with nobody.\n")
}
