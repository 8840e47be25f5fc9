package history

import "strings"

// Workload is what is asked of a strategy. Only runs with equal workloads can be compared.
type Workload struct {
	Name    string  `json:"workload"`
	Users   int     `json:"users"`             // closed loop; 0 in an open loop
	Rate    float64 `json:"rate,omitempty"`    // requests per second of an open loop
	HoldMS  int64   `json:"hold_ms"`           // work inside the critical section
	Goods   int     `json:"goods,omitempty"`   // number of items; older files do not record it
	Skew    string  `json:"skew,omitempty"`    // distribution of the requests over the items; empty: uniform
	Counts  string  `json:"counts,omitempty"`  // units per request, such as 1-3; empty: 1
	Lines   int     `json:"lines,omitempty"`   // most lines of an order; 0: the requests are deductions
	Restock int64   `json:"restock,omitempty"` // units put back at each interval
}

// Items returns the number of items. Older files do not record it: nearly all of them have one.
func (w Workload) Items() int { return max(w.Goods, 1) }

// UnequalCounts reports whether some requests want more units than others.
func (w Workload) UnequalCounts() bool {
	low, high, isRange := strings.Cut(w.Counts, "-")
	return isRange && low != high
}

// Subject is what is measured: a strategy on a store, served by a number of replicas, under a workload.
type Subject struct {
	Strategy string `json:"strategy"`
	Store    string `json:"store"`
	Replicas int    `json:"replicas"`
	Workload
	Sweep string `json:"sweep,omitempty"` // the axis that varies, if the subject is part of a sweep
}

// Key returns the part of the subject that identifies it, also among those of other reports.
func (s Subject) Key() Subject {
	s.Goods = s.Items()
	s.Sweep = ""
	return s
}

// Cell is one run of the plan: one round of a subject.
type Cell struct {
	Subject
	Value string `json:"value,omitempty"` // on the axis of the sweep
	Round int    `json:"round"`           // from 1
}

// InPlan returns the part of the cell that identifies it within one plan. Older manifests hold nothing else.
func (c Cell) InPlan() Cell {
	c.Workload = Workload{Name: c.Workload.Name}
	c.Sweep = ""
	return c
}
