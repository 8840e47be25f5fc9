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
	mutant("buyer-per-replica", "update", "Each replica counts what a buyer has bought by itself.",
		countPerReplica),
	mutant("buyer-unlocked", "update", "The item is not locked before what its buyer has bought is read.",
		rewrite(1, readsBuyers, readsBuyers, " FOR UPDATE", "")),
	mutant("buyer-uncounted", "batch", "1 batch in 5 does not count towards the limits of its buyers.",
		instead(5, countsBuyers, unsent(1))),
	mutant("buyer-overcounted", "update", "1 sale in 20 counts one unit too many towards the limit of its buyer.",
		onEvery(20, countsBuyers, adding(countedUnits, 1))),
	mutant("buyer-any-epoch", "update", "What a buyer has bought of an older stock counts towards the limit.",
		rewrite(1, "AND b.epoch = s.epoch", ""), inStory("stock-is-set/limit")),
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
