package history

// Workload is what is asked of a strategy. Only runs with equal workloads can be compared.
type Workload struct {
	Name    string  `json:"workload"`
	Users   int     `json:"users"`             // closed loop; 0 in an open loop
	Rate    float64 `json:"rate,omitempty"`    // requests per second of an open loop
	HoldMS  int64   `json:"hold_ms"`           // work inside the critical section
	Goods   int     `json:"goods,omitempty"`   // number of items; older files do not record it
	Skew    string  `json:"skew,omitempty"`    // distribution of the requests over the items; empty: uniform
	Counts  string  `json:"counts,omitempty"`  // units per request, such as 1-3; empty: 1
	Restock int64   `json:"restock,omitempty"` // units put back at each interval
}

// Items returns the number of items. Older files do not record it: nearly all of them have one.
func (w Workload) Items() int { return max(w.Goods, 1) }

// Cell is one run of the plan: one round of one strategy under one workload.
type Cell struct {
	Strategy string `json:"strategy"`
	Store    string `json:"store"`
	Replicas int    `json:"replicas"`
	Workload
	Sweep string `json:"sweep,omitempty"` // what varies from cell to cell: users, hold, goods or replicas
	Value string `json:"value,omitempty"` // its value in this cell
	Round int    `json:"round"`           // from 1
}

// Key returns the part of the cell that identifies it within one plan. Older manifests hold nothing else.
func (c Cell) Key() Cell {
	c.Workload = Workload{Name: c.Workload.Name}
	c.Sweep = ""
	return c
}

// At returns the cell's place in the sweep as the end of a sentence, such as ", 8 users". It is empty without a sweep,
// and for a sweep over replicas, which such sentences name already.
func (c Cell) At() string {
	several := "s"
	if c.Value == "1" {
		several = ""
	}
	switch c.Sweep {
	case "users":
		return ", " + c.Value + " user" + several
	case "goods":
		return ", " + c.Value + " item" + several
	case "hold":
		return ", hold " + c.Value
	}
	return ""
}
