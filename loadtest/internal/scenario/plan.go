package scenario

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"stock/loadtest/internal/history"
	"stock/loadtest/internal/oracle"
)

// Names of workloads.
const (
	Plenty     = "plenty"      // as many units as are requested
	FlashSale  = "flash-sale"  // a sixth of the units that are requested
	GivenStock = "given-stock" // as many units as the user says
	FoundStock = "found-stock" // as many units as the service has: the lab cannot set its stock
)

// Cell is one strategy under one workload in one setting. Each round runs it once.
type Cell struct {
	Choice
	Setting
}

// String names the strategy, the workload and the number of replicas.
func (c Cell) String() string {
	replicas := "1 replica"
	if c.Replicas != 1 {
		replicas = fmt.Sprintf("%d replicas", c.Replicas)
	}
	return fmt.Sprintf("%s, %s, %s", c.Strategy.Name, c.Workload.Name, replicas)
}

// durable returns the store in which a sale is durable.
func (c Cell) durable() string {
	if c.Strategy.WriteBehind {
		return oracle.MySQL
	}
	return c.Store
}

// key identifies a cell.
type key struct {
	strategy, store string
	setting         Setting
}

func (c Cell) key() key { return key{c.Strategy.Name, c.Store, c.Setting} }

// historyCell returns a cell as histories and manifests record it.
func (r *Runner) historyCell(cell Cell, round int) history.Cell {
	return history.Cell{
		Strategy: cell.Strategy.Name,
		Store:    cell.Store,
		Replicas: cell.Replicas,
		Workload: cell.Workload,
		Sweep:    r.config.Sweep.Axis,
		Value:    cell.Value,
		Round:    round,
	}
}

// cells returns what a round runs. If oneReplica is set, a strategy that claims more on one replica than on several
// runs on both, to show the difference.
func cells(choices []Choice, workloads []string, settings []Setting, oneReplica bool) []Cell {
	var cells []Cell
	for _, choice := range choices {
		for _, workload := range workloads {
			for _, setting := range settings {
				setting.Workload.Name = workload
				cells = append(cells, Cell{choice, setting})
				claim := choice.Strategy.Claim
				if oneReplica && setting.Replicas > 1 && claim.OneReplica != claim.TwoReplicas {
					setting.Replicas = 1
					cells = append(cells, Cell{choice, setting})
				}
			}
		}
	}
	return cells
}

// shuffled returns the cells in the order in which a round runs them. It differs from round to round, so that what
// changes during a run (a growing log, temperature, other load) does not always affect the same strategy.
func shuffled(cells []Cell, seed uint64, round int) []Cell {
	cells = slices.Clone(cells)
	generator := rand.New(rand.NewPCG(seed, uint64(round)))
	generator.Shuffle(len(cells), func(i, j int) { cells[i], cells[j] = cells[j], cells[i] })
	return cells
}
