package load

import (
	"math/rand/v2"
	"slices"
	"time"

	"stock/loadtest/internal/history"
)

// Names of workloads.
const (
	Plenty     = "plenty"      // as many units as are requested
	FlashSale  = "flash-sale"  // a sixth of the units that are requested
	GivenStock = "given-stock" // as many units as the user says
)

// row is a strategy under a workload. Each round runs it once.
type row struct {
	strategy     Strategy
	history.Cell // without a round, except in the plan
}

// durable returns the store in which a sale is durable.
func (r row) durable() string { return r.strategy.Durable(r.Store) }

// updates reports whether the strategy sells in one store, and another one is updated.
func (r row) updates() bool { return r.durable() != r.Store }

// claim returns what the strategy claims for the row.
func (r row) claim() string {
	return r.strategy.ClaimFor(r.Replicas, r.Restock > 0)
}

func (r row) choice() Choice { return Choice{Strategy: r.strategy, Store: r.Store} }

func (r row) hold() time.Duration { return time.Duration(r.HoldMS) * time.Millisecond }

// rows returns what a round runs. If oneReplica is set, a strategy that claims more on one replica than on several
// runs on both, to show the difference.
func rows(choices []Choice, workloads []string, settings []history.Cell, oneReplica bool) []row {
	var rows []row
	for _, choice := range choices {
		for _, workload := range workloads {
			for _, cell := range settings {
				cell.Strategy, cell.Store, cell.Workload.Name = choice.Strategy.Name, choice.Store, workload
				rows = append(rows, row{strategy: choice.Strategy, Cell: cell})
				claim := choice.Strategy.Claim
				if oneReplica && cell.Replicas > 1 && claim.OneReplica != claim.TwoReplicas {
					cell.Replicas = 1
					rows = append(rows, row{strategy: choice.Strategy, Cell: cell})
				}
			}
		}
	}
	return rows
}

// addRound adds a round to the plan. The order differs from round to round, so that what changes during a run (a
// growing log, temperature, other load) does not always affect the same strategy.
func (r *Runner) addRound(round int, rows []row) {
	rows = slices.Clone(rows)
	rand.New(rand.NewPCG(r.config.Seed, uint64(round))).Shuffle(len(rows), func(i, j int) {
		rows[i], rows[j] = rows[j], rows[i]
	})
	for i := range rows {
		rows[i].Round = round
	}
	r.plan = append(r.plan, rows...)
}
