// Package mutants plants bugs into the service, so that the judge can be tested: it must find every one of them. It
// also plants oddities, which are unusual and correct: the judge must not condemn them.
//
// A mutant is a real strategy with one small change: to the answers, to the statements and scripts on their way to the
// servers, or to the lock. So the judge sees the same claims, workloads and histories as for the real strategy. One
// process plants one mutant, and only a program built with the tag mutants can.
//
// To add a mutant, add a row to the list of its family.
package mutants

import (
	"database/sql/driver"
	"slices"

	"github.com/redis/go-redis/v9"

	"stock/internal/stock"
)

// Mutant is a bug or an oddity.
type Mutant struct {
	Name     string      `json:"name"`
	Family   string      `json:"family"`
	Strategy string      `json:"strategy"` // that it changes
	Store    stock.Store `json:"store"`    // on which the strategy is run; empty: its default
	Oddity   bool        `json:"oddity"`   // the strategy keeps its claims
	Planted  string      `json:"planted"`  // one sentence: what it does
	// Story is the fault scenario that shows the bug, or the part of its name before the slash. Empty: a load does.
	Story string `json:"story,omitempty"`
	// Fault is the fault of the explorer that shows the bug; empty: a load or a scenario does.
	Fault string `json:"fault,omitempty"`

	change change
}

// mutant makes a row of a table: the name, the strategy that is changed, what the mutant does, and how.
func mutant(name, strategy, planted string, change change, options ...func(*Mutant)) Mutant {
	m := Mutant{Name: name, Strategy: strategy, Planted: planted, change: change}
	for _, option := range options {
		option(&m)
	}
	return m
}

func onRedis(m *Mutant) { m.Store = stock.Redis }

func inStory(story string) func(*Mutant) { return func(m *Mutant) { m.Story = story } }

func explored(fault string) func(*Mutant) { return func(m *Mutant) { m.Fault = fault } }

// change puts what a mutant does differently into its plan.
type change func(*plan)

// All lists every mutant, by family.
func All() []Mutant {
	return slices.Concat(
		family("mysql", mysqlBugs), family("redis", redisBugs), family("stream", streamBugs),
		family("ledger", ledgerBugs), family("batching", batchingBugs),
		family("slots", slotsBugs), family("units", unitBugs),
		family("locks", lockBugs), family("fences", fenceBugs), family("orders", orderBugs), family("stores", storeBugs),
		family("restocks", restockBugs), family("reservations", reservationBugs), family("faults", faultBugs),
		family("evidence", evidenceBugs),
		unusual(family("oddity", oddities)),
	)
}

func family(name string, mutants []Mutant) []Mutant {
	mutants = slices.Clone(mutants) // All may be called concurrently
	for i := range mutants {
		mutants[i].Family = name
	}
	return mutants
}

func unusual(mutants []Mutant) []Mutant {
	for i := range mutants {
		mutants[i].Oddity = true
	}
	return mutants
}

// Planted is a mutant in one process of the service.
type Planted struct {
	mutant Mutant
	plan   *plan
}

// Plant plants a mutant into the replica of the given name.
func (m Mutant) Plant(replica string) Planted {
	p := &plan{replica: replica}
	m.change(p)
	return Planted{m, p}
}

// Strikes counts how often the mutant has struck: how often its change was applied. Sometimes that makes no difference,
// such as where a request is refused anyway.
func (p Planted) Strikes() int64 { return p.plan.strikes.Load() }

// MySQL returns a connector whose connections carry the mutant's statements.
func (p Planted) MySQL(original driver.Connector) driver.Connector {
	return connector{original, p.plan}
}

// Redis returns a hook that carries the mutant's commands.
func (p Planted) Redis() redis.Hook { return hook{p.plan} }

// Strategies returns the catalogue with the mutant in the place of its original.
func (p Planted) Strategies(catalogue []stock.Strategy) []stock.Strategy {
	catalogue = slices.Clone(catalogue)
	for i := range catalogue {
		if catalogue[i].Name == p.mutant.Strategy {
			catalogue[i] = p.plan.strategy(catalogue[i])
		}
	}
	return catalogue
}
