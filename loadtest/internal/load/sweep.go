package load

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"stock/loadtest/internal/history"
	"stock/loadtest/internal/traffic"
)

// Sweep varies one property of the workload, to show how each strategy's cost grows with it. The zero Sweep varies
// nothing.
type Sweep struct {
	Axis   string
	Values []int64 // at least two, ascending; of hold, in milliseconds
}

// ParseSweep parses AXIS=VALUE,VALUE,…, such as users=1,8,32 or hold=0,2ms.
func ParseSweep(text string) (Sweep, error) {
	axis, list, ok := strings.Cut(text, "=")
	if !ok {
		return Sweep{}, fmt.Errorf("must be an axis and its values, such as users=1,8,32,128")
	}
	s := Sweep{Axis: axis}
	for word := range strings.SplitSeq(list, ",") {
		value, err := parseValue(axis, strings.TrimSpace(word))
		if err != nil {
			return Sweep{}, err
		}
		if n := len(s.Values); n > 0 && value <= s.Values[n-1] {
			return Sweep{}, fmt.Errorf("%s after %s: values must ascend",
				history.Value(axis, value), history.Value(axis, s.Values[n-1]))
		}
		s.Values = append(s.Values, value)
	}
	if len(s.Values) < 2 {
		return Sweep{}, fmt.Errorf("must have at least two values: the others are compared with the first")
	}
	return s, nil
}

// MaxUsers is how many users one process can simulate, each with its own connection.
const MaxUsers = 10_000

// MaxRounds keeps the plan of a run, with a cell for each row and round, small.
const MaxRounds = 1000

// MaxReplicas is how many replicas the lab starts at most.
const MaxReplicas = 8

// MaxHold is the longest time that a request can spend inside the critical section.
const MaxHold = 10 * time.Second

func parseValue(axis, word string) (int64, error) {
	var largest int64
	switch axis {
	case history.AxisUsers:
		largest = MaxUsers
	case history.AxisGoods:
		largest = 10_000
	case history.AxisReplicas:
		largest = MaxReplicas
	case history.AxisHold:
		if word == "0" {
			return 0, nil
		}
		hold, err := time.ParseDuration(word)
		if err != nil || hold < 0 || hold > MaxHold || hold%time.Millisecond != 0 {
			return 0, fmt.Errorf("hold %q: must be whole milliseconds, at most %v, such as 2ms", word, MaxHold)
		}
		return hold.Milliseconds(), nil
	default:
		return 0, fmt.Errorf("axis %q: must be %s, %s, %s or %s", axis,
			history.AxisUsers, history.AxisHold, history.AxisGoods, history.AxisReplicas)
	}
	value, err := strconv.ParseInt(word, 10, 64)
	if err != nil || value < 1 || value > largest {
		return 0, fmt.Errorf("%s %q: must be a number from 1 to %d", axis, word, largest)
	}
	return value, nil
}

// workload returns the workload without a name, before a sweep.
func (c Config) workload() history.Workload {
	w := history.Workload{
		Users: c.Users, Rate: c.Rate, HoldMS: c.Hold.Milliseconds(), Goods: c.Goods, Restock: c.Restock,
	}
	if c.Rate > 0 {
		w.Users = 0
	}
	if c.Skew != traffic.Uniform {
		w.Skew = c.Skew
	}
	w.Counts = counts(c.MinCount, c.MaxCount)
	return w
}

// counts describes the units per request; empty: 1.
func counts(low, high int64) string {
	switch {
	case low != high:
		return fmt.Sprintf("%d-%d", low, high)
	case low != 1:
		return fmt.Sprint(low)
	}
	return ""
}

// settings returns a cell for each value of the sweep, or the only one if there is no sweep. Their strategies and the
// names of their workloads are not set.
func (c Config) settings() []history.Cell {
	base := history.Cell{
		Subject: history.Subject{Replicas: c.Replicas, Workload: c.workload(), Sweep: c.Sweep.Axis},
	}
	if c.Sweep.Axis == "" {
		return []history.Cell{base}
	}
	var all []history.Cell
	for _, value := range c.Sweep.Values {
		cell := base
		cell.Value = history.Value(c.Sweep.Axis, value)
		switch c.Sweep.Axis {
		case history.AxisUsers:
			cell.Users = int(value)
		case history.AxisHold:
			cell.HoldMS = value
		case history.AxisGoods:
			cell.Goods = int(value)
		case history.AxisReplicas:
			cell.Replicas = int(value)
		}
		all = append(all, cell)
	}
	return all
}
