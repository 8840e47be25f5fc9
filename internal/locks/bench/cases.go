package main

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// A benchCase is a number of contenders for one key. The contenders are spread evenly over the processes.
type benchCase struct {
	Name       string
	Processes  int
	Contenders int           // of all processes together
	Hold       time.Duration // the critical section
	times      float64       // how long a cell takes, as a multiple of -time
}

// The cases. Those that a target is about take longer: no wait can be seen that is longer than its cell and patience
// together, so that the longest wait of a lock under which contenders starve grows with the time of the cell.
var cases = []benchCase{
	{uncontended, 1, 1, 0, 1},
	{"1 contender, 2 ms", 1, 1, 2 * time.Millisecond, 0.5},
	{"8 contenders, 0 ms", 1, 8, 0, 0.75},
	{"8 contenders, 2 ms", 1, 8, 2 * time.Millisecond, 0.75},
	{crowd, 1, 64, 0, 1},
	{crowdAtWork, 1, 64, 2 * time.Millisecond, 4.5},
	{"8 contenders in 8 processes, 0 ms", 8, 8, 0, 0.75},
	{"8 contenders in 8 processes, 2 ms", 8, 8, 2 * time.Millisecond, 0.75},
	{"64 contenders in 8 processes, 0 ms", 8, 64, 0, 1.5},
	{crowdsAtWork, 8, 64, 2 * time.Millisecond, 2.5},
}

// Cases that targets are about.
const (
	uncontended  = "uncontended lock and unlock"
	crowd        = "64 contenders, 0 ms"
	crowdAtWork  = "64 contenders, 2 ms"
	crowdsAtWork = "64 contenders in 8 processes, 2 ms"
)

// A cell is one case run with one lock, once.
type cell struct {
	benchCase
	subject
	Round int // from 1
}

func (c cell) String() string {
	return fmt.Sprintf("round %d: %s: %s", c.Round, c.subject.Name, c.benchCase.Name)
}

// plan lists the cells of all rounds. Each round has every cell once, in an order of its own, so that whatever else the
// machine does meanwhile is spread over all locks.
func plan(cases []benchCase, subjects []subject, rounds int, seed uint64) (cells []cell) {
	random := rand.New(rand.NewPCG(seed, 0))
	for round := range rounds {
		begin := len(cells)
		for _, c := range cases {
			for _, s := range subjects {
				cells = append(cells, cell{c, s, round + 1})
			}
		}
		random.Shuffle(len(cells)-begin, func(i, j int) {
			cells[begin+i], cells[begin+j] = cells[begin+j], cells[begin+i]
		})
	}
	return cells
}
