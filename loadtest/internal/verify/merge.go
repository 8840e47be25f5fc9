package verify

import (
	"fmt"

	"stock/loadtest/internal/history"
)

// Merge sums the verdicts of several rounds of one strategy under one workload. One wrong round is enough to convict,
// and one inconclusive round is enough to prevent clearing.
func Merge(rounds ...Verdict) Verdict {
	m := Verdict{Result: Correct, Outcomes: map[history.Outcome]int{}, Evidence: []string{}}
	if len(rounds) == 0 {
		m.Result = Inconclusive
		return m
	}
	linearizable, otherDoubts := yes, false
	for i, v := range rounds {
		switch {
		case v.Result == Wrong:
			m.Result = Wrong
		case v.Result == Inconclusive && m.Result == Correct:
			m.Result = Inconclusive
		}
		otherDoubts = otherDoubts || v.Result == Inconclusive && !v.Uncontended
		m.Requests += v.Requests
		for outcome, n := range v.Outcomes {
			m.Outcomes[outcome] += n
		}
		m.Figures.Add(v.Figures)
		m.DemandExceeded = m.DemandExceeded || v.DemandExceeded
		linearizable = max(linearizable, answerOf(v.Linearizable))
		for _, e := range v.Evidence {
			if len(rounds) > 1 {
				e = fmt.Sprintf("round %d: %s", i+1, e)
			}
			m.Evidence = append(m.Evidence, e)
		}
	}
	m.Linearizable = linearizable.pointer()
	m.Uncontended = m.Result == Inconclusive && !otherDoubts
	return m
}
