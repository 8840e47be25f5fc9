package load

import (
	"cmp"
	"slices"
	"time"

	"stock/loadtest/internal/history"
	"stock/loadtest/internal/traffic"
	"stock/loadtest/internal/verify"
)

// Names of workloads that are judged and not measured. A lab runs each once.
const (
	Orders  = "orders"  // orders of several items
	Retries = "retries" // requests are sent again while stock is left
	Tail    = "tail"    // soon no single row of slots has enough for a request
	Rest    = "rest"    // a crowd wants the last units, most of them more than are left

	Reservations  = "reservations"  // units are held, and confirmed, cancelled or left to expire
	Cancellations = "cancellations" // sales are cancelled, some twice, in part, or before they are answered
)

// judgedWorkload is a workload that shows mistakes that the measured ones hardly provoke. It is small, and does not
// depend on the user's options.
type judgedWorkload struct {
	name     string
	users    int
	requests int
	mix      traffic.MixConfig // without a seed
	stock    int64             // units, in per cent of those asked for; usually so low that every item sells out
	retries  bool
	cancels  bool
	claim    string // of the strategies that run it; empty: correct
	suits    func(Choice) bool

	holdFor time.Duration // see traffic.Load
}

var judgedWorkloads = []judgedWorkload{
	{
		name: Orders, users: 32, requests: 150, stock: 70,
		mix: traffic.MixConfig{
			Goods: 20, Skew: traffic.Zipf, MinCount: 1, MaxCount: 3, OrderEvery: 1, MaxLines: 5,
		},
		suits: takesOrders,
	},
	{
		name: Retries, users: 32, requests: 500, stock: 80, retries: true,
		mix:   traffic.MixConfig{Goods: 3, MinCount: 1, MaxCount: 3},
		suits: func(c Choice) bool { return c.Strategy.Idempotent },
	},
	{
		name: Tail, users: 32, requests: 300, stock: 50,
		mix:   traffic.MixConfig{Goods: 10, MinCount: 1, MaxCount: 8},
		suits: func(Choice) bool { return true },
	},
	{
		name: Rest, users: 100, requests: 1500, stock: 20, claim: verify.ClaimUndersells,
		mix:   traffic.MixConfig{Goods: 10, MinCount: 1, MaxCount: 8},
		suits: func(Choice) bool { return true },
	},
	{
		name: Reservations, users: 64, requests: 280, stock: 35,
		mix:     traffic.MixConfig{Goods: 3, MinCount: 1, MaxCount: 2},
		holdFor: 300 * time.Millisecond,
		suits:   func(c Choice) bool { return slices.Contains(c.Strategy.Reservations, c.Store) },
	},
	{
		name: Cancellations, users: 32, requests: 350, stock: 40, cancels: true,
		mix: traffic.MixConfig{Goods: 3, MinCount: 1, MaxCount: 3},
		suits: func(c Choice) bool {
			// Under a lock without a fence, units that come back may be overwritten, as with a restock.
			return c.Strategy.Idempotent && !c.Strategy.Own && c.Strategy.ClaimFor(2, true) != verify.ClaimLosesUpdates
		},
	},
}

// judgedTime is the longest that a run of a judged workload may take.
const judgedTime = 40 * time.Second

func takesOrders(c Choice) bool { return slices.Contains(c.Strategy.Orders, c.Store) }

// judgedWorkloadOf returns the judged workload with a name, or nil.
func judgedWorkloadOf(name string) *judgedWorkload {
	i := slices.IndexFunc(judgedWorkloads, func(w judgedWorkload) bool { return w.name == name })
	if i < 0 {
		return nil
	}
	return &judgedWorkloads[i]
}

// judgedOnly reports whether a workload is judged and not measured.
func judgedOnly(workload string) bool { return judgedWorkloadOf(workload) != nil }

// mixFor returns the mix of a strategy, with the counts that it sells. If it takes orders, every second request of
// Retries is one.
func (w judgedWorkload) mixFor(choice Choice) traffic.MixConfig {
	mix := w.mix
	if w.name == Retries && takesOrders(choice) {
		mix.OrderEvery, mix.MaxLines = 2, mix.Goods
	}
	if choice.Strategy.OneUnit {
		mix.MinCount, mix.MaxCount = 1, 1
	}
	return mix
}

// judgedRows returns the judged workloads of each strategy, by its claim. A strategy that claims to be correct on one
// replica only runs there, if oneReplica is set.
func judgedRows(choices []Choice, replicas int, oneReplica bool) []row {
	var rows []row
	for _, choice := range choices {
		on := replicas
		if oneReplica && choice.Strategy.Claim.OneReplica == verify.ClaimCorrect &&
			choice.Strategy.ClaimFor(on, false) != verify.ClaimCorrect {
			on = 1
		}
		claim := choice.Strategy.ClaimFor(on, false)
		for _, w := range judgedWorkloads {
			if claim != cmp.Or(w.claim, verify.ClaimCorrect) || !w.suits(choice) {
				continue
			}
			mix := w.mixFor(choice)
			subject := history.Subject{
				Strategy: choice.Strategy.Name, Store: choice.Store, Replicas: on,
				Workload: history.Workload{
					Name: w.name, Users: w.users, Goods: mix.Goods, Skew: mix.Skew,
					Counts: counts(mix.MinCount, mix.MaxCount), Lines: mix.MaxLines,
				},
			}
			rows = append(rows, row{strategy: choice.Strategy, Cell: history.Cell{Subject: subject}})
		}
	}
	return rows
}
