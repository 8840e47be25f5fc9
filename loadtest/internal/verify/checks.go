package verify

import (
	"fmt"

	"stock/loadtest/internal/history"
)

// check is one way to look at a run. It depends on the books alone, not on other checks.
type check struct {
	name    string
	applies func(history.Run) bool // nil: to every run
	means   Result                 // what a finding means: Wrong or Inconclusive; empty: the check finds nothing
	look    func(*books) result
}

// result is what a check found.
type result struct {
	figures      Figures
	findings     []string
	remarks      []string // for the reader; they weigh nothing
	linearizable *answer  // set by one check alone
	unexplained  []int64  // set by the same check
}

func (r *result) add(other result) {
	r.figures.Add(other.figures)
	r.findings = append(r.findings, other.findings...)
	r.remarks = append(r.remarks, other.remarks...)
}

func (r *result) findf(format string, args ...any) {
	r.findings = append(r.findings, fmt.Sprintf(format, args...))
}

func (r *result) remarkf(format string, args ...any) {
	r.remarks = append(r.remarks, fmt.Sprintf(format, args...))
}

// checks is everything that a run is judged by, in the order of the evidence. To add a check, write its function and
// add a row.
var checks = []check{
	{name: "sums", look: eachItem((*item).sums)},
	{name: "overlap count", applies: sells, look: (*books).countOverlaps},
	{name: "contention count", look: (*books).countContended},
	{name: "again count", look: (*books).countAgain},
	{name: "set", applies: sells, means: Wrong, look: (*books).setAsAsked},
	{name: "balance", applies: sells, means: Wrong, look: eachItem((*item).balance)},
	{name: "unchanged", applies: sellsNothing, means: Wrong, look: eachItem((*item).stockUnchanged)},
	{name: "confirmed", applies: sellsNothing, means: Wrong, look: (*books).confirmsSales},
	{name: "undersold", applies: sells, means: Wrong, look: eachItem((*item).undersold)},
	{name: "receipts", means: Wrong, look: (*books).receiptsMatch},
	{name: "marked replays", means: Wrong, look: (*books).replaysFollow},
	{name: "refusals", applies: sells, means: Wrong, look: eachItem((*item).refusedTruly)},
	{name: "tokens", applies: sells, means: Wrong, look: eachItem((*item).risingTokens)},
	{name: "duplicates", applies: sells, means: Wrong, look: eachItem((*item).duplicates)},
	{name: "overlaps", applies: sellsExclusively, means: Wrong, look: (*books).overlaps},
	{name: "buyer limits", applies: sells, means: Wrong, look: eachItem((*item).buyerLimits)},
	{name: "replays", applies: sells, means: Wrong, look: (*books).replays},
	{name: "cancellations", means: Wrong, look: (*books).cancellations},
	{name: "idle refusals", applies: sellsUnderLoad, means: Wrong, look: (*books).refusesNobodyIdly},
	{name: "refused orders", applies: sells, means: Wrong, look: (*books).refusalsNameItems},
	{name: "ledger", applies: sellsWithLedger, means: Wrong, look: eachItem((*item).audit)},
	{name: "whole orders", applies: sells, means: Wrong, look: (*books).wholeOrders},
	{name: "linearizability", applies: sells, means: Wrong, look: (*books).linearizability},

	{name: "complete", means: Inconclusive, look: (*books).complete},
	{name: "load", applies: isLoad, means: Inconclusive, look: (*books).enoughLoad},
	{name: "scarcity", applies: isScarce, means: Inconclusive, look: (*books).scarcity},
	{name: "unknown", applies: isLoad, means: Inconclusive, look: (*books).fewUnknown},
	{name: "busy", applies: sellsUnderLoad, means: Inconclusive, look: (*books).fewTurnedAway},
	{name: "rejected", means: Inconclusive, look: (*books).noneRejected},
	{name: "remaining", applies: reportsRemaining, means: Inconclusive, look: (*books).allReportRemaining},
	{name: "clocks", means: Inconclusive, look: (*books).clocks},
	{name: "contention", applies: sellsUnderLoad, means: Inconclusive, look: (*books).contention},
	{name: "buyers", applies: limitsBuyers, means: Inconclusive, look: (*books).buyersTested},
	{name: "cancelled", applies: cancels, means: Inconclusive, look: (*books).cancelsTested},
	{name: "again", applies: retries, means: Inconclusive, look: (*books).againTested},

	{name: "witness", look: (*books).witness},
}

// checksOf returns what a run is judged by.
func checksOf(run history.Run) []check {
	if run.CallsVersion > 0 {
		return reservationChecks
	}
	return checks
}

func sellsNothing(run history.Run) bool     { return run.Claim == ClaimSellsNothing }
func sells(run history.Run) bool            { return run.Claim != ClaimSellsNothing }
func sellsExclusively(run history.Run) bool { return sells(run) && run.Exclusive }
func sellsWithLedger(run history.Run) bool  { return sells(run) && run.Ledger }
func isLoad(run history.Run) bool           { return run.Story == "" }
func sellsUnderLoad(run history.Run) bool   { return sells(run) && isLoad(run) }
func isJudgedOnly(run history.Run) bool     { return run.JudgedOnly }
func isScarce(run history.Run) bool         { return run.Scarce }
func retries(run history.Run) bool          { return run.Retries }
func cancels(run history.Run) bool          { return run.Cancels }
func limitsBuyers(run history.Run) bool     { return run.Buyers }
func reportsRemaining(run history.Run) bool { return !run.OmitsRemaining }

// eachItem makes a check of all items out of a check of one.
func eachItem(look func(*item) result) func(*books) result {
	return func(b *books) (all result) {
		for _, it := range b.items {
			all.add(look(it))
		}
		return all
	}
}

// maxExamples is how many concrete requests a check names.
const maxExamples = 3

// examples collects findings of one kind, and keeps the first few.
type examples struct {
	first []string
	count int64
}

func (e *examples) addf(format string, args ...any) {
	if e.count++; e.count <= maxExamples {
		e.first = append(e.first, fmt.Sprintf(format, args...))
	}
}

// findings returns the examples, followed by a summary if there are more.
func (e *examples) findings(format string, args ...any) []string {
	if e.count <= maxExamples {
		return e.first
	}
	return append(e.first, fmt.Sprintf(format, args...))
}
