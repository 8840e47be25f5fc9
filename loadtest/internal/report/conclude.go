package report

import (
	"fmt"
	"slices"

	"stock/loadtest/internal/verify"
)

// conclude determines whether every claim held, and whether the run proves anything.
func (r *Report) conclude() {
	r.ClaimsHeld = r.judged() > 0 && len(r.Problems) == 0 // those known before
	if r.judged() == 0 {
		r.Inconclusive = true
		r.Problems = append(r.Problems, "nothing was run")
	}
	for _, row := range r.Rows {
		if row.ClaimHeld || row.Untested {
			continue
		}
		r.ClaimsHeld = false
		what := "claim not held"
		if row.proves() {
			r.ClaimFailed = true
		} else {
			r.Inconclusive, what = true, "inconclusive"
		}
		problem := fmt.Sprintf("%s: %s: claims %s, found %s", what, row.Label(), row.Claim, row.verdictWithEvidence())
		if row.Own {
			problem = fmt.Sprintf("%s: %s", row.Label(), row.verdictWithEvidence())
		}
		r.Problems = append(r.Problems, problem)
	}

	r.faultProblems()
	r.exploredProblems()
	r.contractProblems()
	for _, control := range r.controls() {
		if control.caught {
			continue
		}
		r.Inconclusive = true
		why := "a run that misses a known bug proves nothing"
		if !control.provoked {
			why = "demand never exceeded the stock, so it could do nothing wrong"
		}
		r.Problems = append(r.Problems, fmt.Sprintf("inconclusive: control %s came out clean: %s", control.strategy, why))
	}
}

// judged counts what the report judges.
func (r *Report) judged() int { return len(r.Rows) + len(r.Faults) + len(r.Explored) + len(r.Contract) }

// proves reports whether the row proves anything about the claim of its strategy. A control that came out clean says
// more about the load than about the strategy.
func (r *Row) proves() bool {
	return r.Result != verify.Inconclusive && (!r.Control || r.Result == verify.Wrong)
}

// control sums up the rows of a strategy that is wrong on purpose, except those in which it claims to be correct, and
// those with a load that it serves correctly: one that undersells needs unequal counts.
type control struct {
	strategy string
	provoked bool // a load could bring out what it does wrong
	caught   bool
}

func (r *Report) controls() []control {
	var controls []control
	for _, row := range r.Rows {
		if !row.Control || row.Claim == verify.ClaimCorrect ||
			row.Claim == verify.ClaimUndersells && !row.UnequalCounts() {
			continue
		}
		i := slices.IndexFunc(controls, func(c control) bool { return c.strategy == row.Strategy })
		if i < 0 {
			i = len(controls)
			controls = append(controls, control{strategy: row.Strategy})
		}
		controls[i].provoked = controls[i].provoked || verify.Provoked(row.Claim, row.Workload, row.Verdict)
		controls[i].caught = controls[i].caught || row.Result == verify.Wrong
	}
	return controls
}

// verdictWithEvidence is the verdict with the first piece of evidence.
func (r *Row) verdictWithEvidence() string {
	if r.Result == verify.Correct || len(r.Evidence) == 0 {
		return string(r.Result)
	}
	return fmt.Sprintf("%s (%s)", r.Result, r.Evidence[0])
}

// Success is the conclusion of a report without problems.
func (r *Report) Success() string {
	switch {
	case slices.ContainsFunc(r.Faults, func(f Fault) bool { return f.Effect == Unsafe }) && len(r.Rows) == 0:
		return "Every claim held: nothing is unsafe that is claimed to be safe."
	case len(r.Rows) == 0:
		return "Every claim held."
	case r.Rows[0].Own:
		return r.Rows[0].Strategy + " sold correctly in every run."
	case len(r.controls()) == 0:
		return "Every claim held; no control was run."
	}
	return "Every claim held, and every control was caught."
}
