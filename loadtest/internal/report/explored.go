package report

import (
	"fmt"

	"stock/loadtest/internal/explore/trace"
)

// AddExplored adds what the exploration of a strategy found.
func (b *Builder) AddExplored(r trace.Result) { b.explored = append(b.explored, r) }

// exploredProblems adds the claims that the exploration refutes, and schedules that could not be judged. That there was
// no time for all of them is no problem.
func (r *Report) exploredProblems() {
	for _, found := range r.Explored {
		for _, c := range found.Cells {
			if c.Held {
				continue
			}
			r.ClaimsHeld, r.ClaimFailed = false, true
			r.Problems = append(r.Problems,
				fmt.Sprintf("claim not held: %s explored, %s: claims %q, found %s", found.Strategy, c.Name(), c.Claim, c.Found()))
		}
		if n := found.NotJudged(); n > 0 {
			r.ClaimsHeld, r.Inconclusive = false, true
			r.Problems = append(r.Problems,
				fmt.Sprintf("inconclusive: %s explored: %s could not be repeated or judged", found.Strategy, plural(n, "schedule")))
		}
	}
}

// ExploredSentence sums up several explorations; empty if there are none.
func ExploredSentence(results []trace.Result) string {
	if len(results) == 0 {
		return ""
	}
	schedules, exhausted, always, struck, refuted := 0, 0, 0, 0, 0
	for _, found := range results {
		schedules += found.Tally.Schedules
		if found.Exhausted {
			exhausted++
		}
		switch {
		case found.Damaged(false):
			always++
		case found.Damaged(true):
			struck++
		}
		if !found.Held() {
			refuted++
		}
	}
	text := fmt.Sprintf("Explored: %d, in %s. Exhausted: %d.", len(results), plural(schedules, "schedule"), exhausted)
	if results[0].Service() {
		return text // the heading says what was found
	}
	text += fmt.Sprintf(" Damage without a fault: %d", always)
	if results[0].Bounds.Faults > 0 {
		text += fmt.Sprintf("; only if one strikes: %d", struck)
	}
	return text + fmt.Sprintf(". Refuted: %d.", refuted)
}

// writeExplored writes the summary, and a line for each strategy of which a claim is refuted.
func (r *Report) writeExplored(out printer) {
	if len(r.Explored) == 0 {
		return
	}
	out.section("Every interleaving")
	out.item(plain, fmt.Sprintf("%s Schedules have %s. The traces are in report.html.",
		ExploredSentence(r.Explored), r.Explored[0].Limits()))
	for _, found := range r.Explored {
		for _, c := range found.Cells {
			if c.Held {
				continue
			}
			out.item(red, fmt.Sprintf("%s, %s: %s, %s", found.Strategy, c.Name(), c.Found(), c.Verdict()))
			for _, kind := range c.Damages() {
				out.item(plain, found.Replay(c.Shortest[kind].Token))
			}
		}
	}
}
