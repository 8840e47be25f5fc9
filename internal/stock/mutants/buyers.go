package mutants

import (
	"context"
	"database/sql/driver"
	"slices"
	"strings"
)

const (
	// countsBuyers is in the statement that writes what buyers have bought.
	countsBuyers = "INSERT INTO buyer_units"
	// countedUnits is the argument of it that has the units of the first buyer.
	countedUnits = 3
	// readsBuyers is in the statement that locks an item and reads what buyers have bought of it.
	readsBuyers = "LEFT JOIN buyer_units"
)

var buyerBugs = []Mutant{
	{
		Name: "ledger-buyer-per-replica", Strategy: "update",
		Planted: "Each replica counts what a buyer has bought by itself.",
		change:  countPerReplica,
	},
	{
		Name: "ledger-buyer-unlocked", Strategy: "update",
		Planted: "The item is not locked before what its buyer has bought is read.",
		change:  rewrite(1, readsBuyers, readsBuyers, " FOR UPDATE", ""),
	},
	{
		Name: "ledger-buyer-uncounted", Strategy: "update",
		Planted: "1 sale in 10 does not count towards the limit of its buyer.",
		change:  onStatement(10, countsBuyers, unsent(1)),
	},
	{
		Name: "ledger-buyer-overcounted", Strategy: "update",
		Planted: "1 sale in 20 counts one unit too many towards the limit of its buyer.",
		change:  onArgs(20, countsBuyers, add(countedUnits, 1)),
	},
	{
		Name: "batch-ledger-buyer-per-replica", Strategy: "batch",
		Planted: "Each replica counts what a buyer has bought by itself.",
		change:  countPerReplica,
	},
	{
		Name: "batch-ledger-buyer-uncounted", Strategy: "batch",
		Planted: "1 batch in 5 does not count towards the limits of its buyers.",
		change:  onStatement(5, countsBuyers, unsent(1)),
	},
}

// countPerReplica gives buyers another name in each replica, in the statements that count.
func countPerReplica(p *plan) {
	rename := func(args []driver.NamedValue) []driver.NamedValue {
		args = slices.Clone(args)
		for i := range args {
			if buyer, ok := args[i].Value.([]byte); ok {
				p.strikes.Add(1)
				args[i].Value = append(slices.Clone(buyer), p.replica...)
			}
		}
		return args
	}
	p.execute = func(next executeFunc) executeFunc {
		return func(ctx context.Context, statement string, args []driver.NamedValue) (driver.Result, error) {
			if strings.Contains(statement, countsBuyers) {
				args = rename(args)
			}
			return next(ctx, statement, args)
		}
	}
	p.query = func(next queryFunc) queryFunc {
		return func(ctx context.Context, statement string, args []driver.NamedValue) (driver.Rows, error) {
			if !strings.Contains(statement, readsBuyers) {
				return next(ctx, statement, args)
			}
			rows, err := next(ctx, statement, rename(args))
			if err != nil {
				return rows, err
			}
			return editedRow{rows, func(row []driver.Value) {
				if buyer, ok := row[buyerColumn].([]byte); ok {
					row[buyerColumn] = buyer[:max(0, len(buyer)-len(p.replica))]
				}
			}}, nil
		}
	}
}

// buyerColumn is the column of readsBuyers that names the buyer.
const buyerColumn = 2
