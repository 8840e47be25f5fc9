package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// A benchCase is a number of contenders for one key. The contenders are spread evenly over the processes.
type benchCase struct {
	Name       string
	Processes  int
	Contenders int           // of all processes together
	Hold       time.Duration // the critical section
	times      float64       // how long a cell takes, as a multiple of -time
	turns      bool          // a cell is of all locks, which take turns
}

// The cases. Those that a target is about take longer: no wait can be seen that is longer than its cell and patience
// together, so that the longest wait of a lock under which contenders starve grows with the time of the cell.
var cases = []benchCase{
	{uncontended, 1, 1, 0, 5, true},
	{"1 contender, 2 ms", 1, 1, 2 * time.Millisecond, 0.5, false},
	{"8 contenders, 0 ms", 1, 8, 0, 0.75, false},
	{"8 contenders, 2 ms", 1, 8, 2 * time.Millisecond, 0.75, false},
	{crowd, 1, 64, 0, 1, false},
	{crowdAtWork, 1, 64, 2 * time.Millisecond, 4.5, false},
	{"8 contenders in 8 processes, 0 ms", 8, 8, 0, 0.75, false},
	{"8 contenders in 8 processes, 2 ms", 8, 8, 2 * time.Millisecond, 0.75, false},
	{"64 contenders in 8 processes, 0 ms", 8, 64, 0, 1.5, false},
	{crowdsAtWork, 8, 64, 2 * time.Millisecond, 2.5, false},
}

// Cases that targets are about.
const (
	uncontended  = "uncontended lock and unlock"
	crowd        = "64 contenders, 0 ms"
	crowdAtWork  = "64 contenders, 2 ms"
	crowdsAtWork = "64 contenders in 8 processes, 2 ms"
)

// caseNamed returns the case of a row.
func caseNamed(name string) benchCase {
	return cases[slices.IndexFunc(cases, func(c benchCase) bool { return c.Name == name })]
}

// A cell is one case run once: with one lock, or with all that take turns.
type cell struct {
	benchCase
	subjects []subject
	Round    int    // from 1
	seed     uint64 // of the turns
}

func (c cell) String() string {
	var names []string
	for _, s := range c.subjects {
		names = append(names, s.Name)
	}
	return fmt.Sprintf("round %d: %s: %s", c.Round, strings.Join(names, ", "), c.Name)
}

// plan lists the cells of all rounds. Each round has every cell once, in an order of its own, so that whatever else the
// machine does meanwhile is spread over all locks.
func plan(cases []benchCase, subjects []subject, rounds int, seed uint64) (cells []cell) {
	random := rand.New(rand.NewPCG(seed, 0))
	for round := range rounds {
		begin := len(cells)
		for _, c := range cases {
			if c.turns {
				cells = append(cells, cell{c, subjects, round + 1, random.Uint64()})
				continue
			}
			for i := range subjects {
				cells = append(cells, cell{c, subjects[i : i+1], round + 1, 0})
			}
		}
		random.Shuffle(len(cells)-begin, func(i, j int) {
			cells[begin+i], cells[begin+j] = cells[begin+j], cells[begin+i]
		})
	}
	return cells
}
