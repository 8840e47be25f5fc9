package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// benchCase is a number of contenders for one key, spread evenly over the processes.
type benchCase struct {
	Name       string
	Processes  int
	Contenders int           // of all processes together
	Hold       time.Duration // time in the critical section
	times      float64       // duration of a cell, as a multiple of -time
	alternate  bool          // one cell measures all locks, which take turns after each operation
}

// The cases. Those that have a target run longer. A wait can only be measured up to the cell's duration plus patience,
// so the longest waits are comparable only between cells of equal duration.
var cases = []benchCase{
	{Name: uncontended, Processes: 1, Contenders: 1, times: 5, alternate: true},
	{Name: "1 contender, 2 ms", Processes: 1, Contenders: 1, Hold: 2 * time.Millisecond, times: 0.5},
	{Name: "8 contenders, 0 ms", Processes: 1, Contenders: 8, times: 0.75},
	{Name: "8 contenders, 2 ms", Processes: 1, Contenders: 8, Hold: 2 * time.Millisecond, times: 0.75},
	{Name: crowd, Processes: 1, Contenders: 64, times: 1},
	{Name: crowdAtWork, Processes: 1, Contenders: 64, Hold: 2 * time.Millisecond, times: 4.5},
	{Name: "8 contenders in 8 processes, 0 ms", Processes: 8, Contenders: 8, times: 0.75},
	{Name: "8 contenders in 8 processes, 2 ms", Processes: 8, Contenders: 8, Hold: 2 * time.Millisecond, times: 0.75},
	{Name: "64 contenders in 8 processes, 0 ms", Processes: 8, Contenders: 64, times: 1.5},
	{Name: crowdsAtWork, Processes: 8, Contenders: 64, Hold: 2 * time.Millisecond, times: 2.5},
}

// The names of the cases that have a target.
const (
	uncontended  = "uncontended lock and unlock"
	crowd        = "64 contenders, 0 ms"
	crowdAtWork  = "64 contenders, 2 ms"
	crowdsAtWork = "64 contenders in 8 processes, 2 ms"
)

// cell is one case in one round: with one lock, or with all of them taking turns.
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

// plan lists the cells of all rounds. Each round runs every cell once, in a random order of its own, so that other work
// of the machine is spread over all locks.
func plan(cases []benchCase, subjects []subject, rounds int, seed uint64) (cells []cell) {
	random := rand.New(rand.NewPCG(seed, 0))
	for round := 1; round <= rounds; round++ {
		begin := len(cells)
		for _, c := range cases {
			if c.alternate {
				cells = append(cells, cell{benchCase: c, subjects: subjects, Round: round, seed: random.Uint64()})
				continue
			}
			for i := range subjects {
				cells = append(cells, cell{benchCase: c, subjects: subjects[i : i+1], Round: round})
			}
		}
		random.Shuffle(len(cells)-begin, func(i, j int) {
			cells[begin+i], cells[begin+j] = cells[begin+j], cells[begin+i]
		})
	}
	return cells
}
