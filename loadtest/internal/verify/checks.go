package verify

import (
	"fmt"

	"stock/loadtest/internal/history"
)

// check is one way to look at a run. It depends on the books alone, not on other checks.
type check struct {
	name    string
	applies func(history.Run) bool // nil: to every run
	weighs  func(history.Run) bool // in which runs a finding counts, beside the figures; nil: in every one
	means   Result                 // what a finding means: Wrong or Inconclusive; empty: the check finds nothing
	look    func(*books) result
}

// result is what a check found.
type result struct {
	figures      Figures
	examples     []string // the first findings of each item
	findings     int64
	remarks      []string // for the reader; they weigh nothing
	linearizable *answer  // set by one check alone
}

func (r *result) add(other result) {
	r.figures.Add(other.figures)
	r.examples = append(r.examples, other.examples...)
	r.findings += other.findings
	r.remarks = append(r.remarks, other.remarks...)
}

// maxExamples is how many concrete requests a check names.
const maxExamples = 3

func (r *result) findf(format string, args ...any) {
	if r.findings++; len(r.examples) < maxExamples {
		r.examples = append(r.examples, fmt.Sprintf(format, args...))
	}
}

func (r *result) remarkf(format string, args ...any) {
	r.remarks = append(r.remarks, fmt.Sprintf(format, args...))
}

// evidence returns the examples, and how many more there are.
func (r *result) evidence() []string {
	if more := r.findings - int64(len(r.examples)); more > 0 {
		return append(r.examples, fmt.Sprintf("and %d more like these", more))
	}
	return r.examples
}

// checks is everything that a run is judged by, in the order of the evidence. To add a check, write its function and
// add a row.
var checks = []check{
	{name: "sums", look: eachItem((*item).sums)},
	{name: "reservation count", applies: reserves, look: (*books).countReservations},
	{name: "set", applies: deducts, means: Wrong, look: (*books).setAsAsked},
	{name: "one end", applies: reserves, means: Wrong, look: eachReservation((*reservation).endsTwice, endedTwice)},
	{name: "known", applies: reserves, means: Wrong, look: eachReservation((*reservation).isGone, nil)},
	{name: "late confirmations", applies: reserves, means: Wrong,
		look: eachReservation((*reservation).confirmedLate, lateConfirmations)},
	{name: "early ends", applies: reserves, means: Wrong, look: eachReservation((*reservation).endsEarly, endedEarly)},
	{name: "states", applies: reserves, means: Wrong, look: eachReservation((*reservation).wrongState, wrongStates)},
	{name: "same answers", applies: reserves, means: Wrong,
		look: eachReservation((*reservation).changes, differentAnswers)},
	{name: "one hold per key", applies: reserves, means: Wrong, look: (*books).oneHoldPerKey},
	{name: "balance", applies: deducts, means: Wrong, look: eachItem((*item).balance)},
	{name: "held at once", applies: reserves, means: Wrong, look: (*books).heldAtOnce},
	{name: "unchanged", applies: sellsNothing, means: Wrong, look: eachItem((*item).stockUnchanged)},
	{name: "confirmed", applies: sellsNothing, means: Wrong, look: (*books).confirmsSales},
	{name: "undersold", applies: deducts, means: Wrong, look: (*books).undersold},
	{name: "receipts", means: Wrong, look: (*books).receiptsMatch},
	{name: "marked replays", applies: sellsAtAll, means: Wrong, look: (*books).replaysFollow},
	{name: "refusals", applies: sells, means: Wrong, look: eachItem((*item).refusedTruly)},
	{name: "tokens", applies: sells, means: Wrong, look: eachItem((*item).risingTokens)},
	{name: "duplicates", applies: sells, means: Wrong, look: eachItem((*item).duplicates)},
	{name: "overlaps", applies: sells, weighs: isExclusive, means: Wrong, look: (*books).overlaps},
	{name: "replays", applies: sells, means: Wrong, look: (*books).replays},
	{name: "cancellations", applies: sellsAtAll, means: Wrong, look: (*books).cancellations},
	{name: "idle refusals", applies: sellsUnderLoad, means: Wrong, look: (*books).refusesNobodyIdly},
	{name: "ledger", applies: sellsWithLedger, means: Wrong, look: eachItem((*item).audit)},
	{name: "whole orders", applies: sells, means: Wrong, look: (*books).wholeOrders},
	{name: "linearizability", applies: sells, means: Wrong, look: (*books).linearizability},

	{name: "complete", means: Inconclusive, look: (*books).complete},
	{name: "load", applies: isLoad, means: Inconclusive, look: (*books).enoughLoad},
	{name: "scarcity", applies: isScarce, means: Inconclusive, look: (*books).scarcity},
	{name: "unknown", applies: isLoad, means: Inconclusive, look: (*books).fewUnknown},
	{name: "busy", applies: sellsUnderLoad, means: Inconclusive, look: (*books).fewTurnedAway},
	{name: "busy calls", applies: reservesUnderLoad, means: Inconclusive, look: (*books).fewBusyCalls},
	{name: "rejected", means: Inconclusive, look: (*books).noneRejected},
	{name: "remaining", applies: reportsRemaining, means: Inconclusive, look: (*books).allReportRemaining},
	{name: "clocks", means: Inconclusive, look: (*books).clocks},
	{name: "contention", applies: sellsAtAll, weighs: sellsUnderLoad, means: Inconclusive, look: (*books).contention},
	{name: "cancelled", applies: cancels, means: Inconclusive, look: (*books).cancelsTested},
	{name: "again", applies: sellsAtAll, weighs: retries, means: Inconclusive, look: (*books).againTested},
	{name: "situations", applies: reservesSmall, means: Inconclusive, look: (*books).situations},

	{name: "witness", look: (*books).witness},
}

func reserves(run history.Run) bool          { return run.Reserves }
func sellsAtAll(run history.Run) bool        { return !reserves(run) }
func sellsNothing(run history.Run) bool      { return sellsAtAll(run) && run.Claim == ClaimSellsNothing }
func sells(run history.Run) bool             { return sellsAtAll(run) && run.Claim != ClaimSellsNothing }
func deducts(run history.Run) bool           { return reserves(run) || sells(run) }
func isExclusive(run history.Run) bool       { return run.Exclusive }
func sellsWithLedger(run history.Run) bool   { return sells(run) && run.Ledger }
func isLoad(run history.Run) bool            { return run.Scenario == "" }
func sellsUnderLoad(run history.Run) bool    { return sells(run) && isLoad(run) }
func reservesUnderLoad(run history.Run) bool { return reserves(run) && isLoad(run) }
func reservesSmall(run history.Run) bool     { return reserves(run) && run.JudgedOnly }
func isScarce(run history.Run) bool          { return run.Scarce }
func retries(run history.Run) bool           { return run.Retries }
func cancels(run history.Run) bool           { return run.Cancels }
func reportsRemaining(run history.Run) bool  { return sellsAtAll(run) && !run.OmitsRemaining }

// eachItem makes a check of all items out of a check of one.
func eachItem(look func(*item) result) func(*books) result {
	return func(b *books) (all result) {
		for _, it := range b.items {
			all.add(look(it))
		}
		return all
	}
}
