package mutants

import (
	"database/sql/driver"
	"slices"
)

const (
	// countsBuyers is in the statement that writes what buyers have bought.
	countsBuyers = "INSERT INTO buyer_units"
	// countedUnits is the argument of it that has the units of the first buyer.
	countedUnits = 3
	// readsBuyers is in the statement that locks an item and reads what buyers have bought of it.
	readsBuyers = "LEFT JOIN buyer_units"
	// buyerColumn is the column of it that names the buyer.
	buyerColumn = 2
)

var buyerBugs = []Mutant{
	{
		Name: "buyer-per-replica", Strategy: "update",
		Planted: "Each replica counts what a buyer has bought by itself.",
		change:  countPerReplica,
	},
	{
		Name: "buyer-unlocked", Strategy: "update",
		Planted: "The item is not locked before what its buyer has bought is read.",
		change:  rewrite(1, readsBuyers, readsBuyers, " FOR UPDATE", ""),
	},
	{
		Name: "buyer-uncounted", Strategy: "batch",
		Planted: "1 batch in 5 does not count towards the limits of its buyers.",
		change:  instead(5, countsBuyers, unsent(1)),
	},
	{
		Name: "buyer-overcounted", Strategy: "update",
		Planted: "1 sale in 20 counts one unit too many towards the limit of its buyer.",
		change:  onEvery(20, countsBuyers, adding(countedUnits, 1)),
	},
	{
		Name: "buyer-any-epoch", Strategy: "update", Story: "stock-is-set/limit",
		Planted: "What a buyer has bought of an older stock counts towards the limit.",
		change:  rewrite(1, "AND b.epoch = s.epoch", ""),
	},
}

// countPerReplica gives buyers another name in each replica, in the statements that count.
func countPerReplica(p *plan) {
	p.edit = func(s *statement) {
		if !s.contains(countsBuyers) && !s.contains(readsBuyers) {
			return
		}
		for i := range s.args {
			if buyer, ok := s.args[i].Value.([]byte); ok {
				p.strikes.Add(1)
				s.set(i, append(slices.Clone(buyer), p.replica...))
			}
		}
	}
	p.row = func(s *statement, row []driver.Value) {
		if !s.contains(readsBuyers) {
			return
		}
		if buyer, ok := row[buyerColumn].([]byte); ok {
			row[buyerColumn] = buyer[:max(0, len(buyer)-len(p.replica))]
		}
	}
}
