package report

import (
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/verify"
)

// The words of a verdict, beside those of package verify.
const (
	Baseline = "baseline"
	// LateLosesUpdate is said of a strategy that is correct under load, but not after a late write.
	LateLosesUpdate  = "a late write loses an update"
	CorrectUnderLoad = "correct under load"
	ClaimedOnly      = "claimed, not played" // follows from a claim
)

// Word is the verdict on a cell in words. What a late write does has not been played yet, and is what is claimed.
func (c Cell) Word(run history.Run) string {
	switch {
	case run.Claim == verify.ClaimSellsNothing:
		return Baseline
	case c.Result == verify.Correct && run.LateLosesUpdate:
		return LateLosesUpdate
	}
	return string(c.Result)
}
