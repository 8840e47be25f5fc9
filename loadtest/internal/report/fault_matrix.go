package report

import (
	"fmt"
	"slices"
	"strings"
)

// story is what came of one scenario, for all that played it.
type story struct {
	scenario, title string
	proof, provedBy string // of the first cell that has one, and that cell's strategy
	groups          []outcomeGroup
}

// outcomeGroup is the strategies for which a scenario ended in the same way.
type outcomeGroup struct {
	outcome        Outcome
	least, longest float64 // seconds that an item was blocked
	names          []string
	reason         string // why it was skipped
	counted        bool   // instead of listed
}

// shownOutcomes lists the outcomes in the order in which they are shown.
var shownOutcomes = []Outcome{Unsafe, Unavailable, Blocked, Safe, Inconclusive, Skipped}

// stories groups the results by scenario and outcome.
func (r *Report) stories() (stories []story) {
	for _, scenario := range r.Scenarios() {
		s := story{scenario: scenario}
		played := map[string]int{} // by strategy
		for _, f := range r.Faults {
			if f.Scenario == scenario {
				played[f.Strategy]++
				s.title = f.Title
				if s.proof == "" {
					s.proof, s.provedBy = f.Proof, f.Strategy
				}
			}
		}
		for _, outcome := range shownOutcomes {
			for _, reason := range r.reasons(scenario, outcome) {
				s.groups = append(s.groups, r.group(scenario, outcome, reason, played))
			}
		}
		s.countLargest()
		stories = append(stories, s)
	}
	return stories
}

// reasons lists why cells of a scenario ended in an outcome: only a cell that was skipped has a reason, and the others
// have an empty one.
func (r *Report) reasons(scenario string, outcome Outcome) (reasons []string) {
	for _, f := range r.Faults {
		if f.Scenario == scenario && f.Outcome == outcome && !slices.Contains(reasons, f.reason()) {
			reasons = append(reasons, f.reason())
		}
	}
	return reasons
}

// reason is why a scenario was skipped; empty if it was not.
func (f Fault) reason() string {
	if f.Outcome != Skipped || len(f.Evidence) == 0 {
		return ""
	}
	return f.Evidence[0]
}

// group collects the strategies for which a scenario ended in an outcome at least once, for a reason. played tells how
// often each has played it.
func (r *Report) group(scenario string, outcome Outcome, reason string, played map[string]int) outcomeGroup {
	g := outcomeGroup{outcome: outcome, reason: reason}
	times := map[string]int{}
	failed := map[string]bool{}
	for _, f := range r.Faults {
		if f.Scenario != scenario || f.Outcome != outcome || f.reason() != reason {
			continue
		}
		if f.Seconds > 0 && (g.least == 0 || f.Seconds < g.least) {
			g.least = f.Seconds
		}
		g.longest = max(g.longest, f.Seconds)
		if times[f.Strategy]++; times[f.Strategy] == 1 {
			g.names = append(g.names, f.Strategy)
		}
		failed[f.Strategy] = failed[f.Strategy] || !f.ClaimHeld && outcome != Skipped
	}
	for i, name := range g.names {
		if times[name] < played[name] {
			g.names[i] += fmt.Sprintf(" %d/%d", times[name], played[name])
		}
		if failed[name] {
			g.names[i] += " ✗"
		}
	}
	return g
}

// String returns the outcome with its time or reason.
func (g outcomeGroup) String() string {
	switch {
	case g.longest > 0:
		least, longest := fmt.Sprintf("%.1f", g.least), fmt.Sprintf("%.1f", g.longest)
		if least == longest {
			return fmt.Sprintf("%s %s s", g.outcome, least)
		}
		return fmt.Sprintf("%s %s–%s s", g.outcome, least, longest)
	case g.reason != "":
		return fmt.Sprintf("%s (%s)", g.outcome, g.reason)
	}
	return string(g.outcome)
}

// many is the number of names from which on the largest group of a story is counted instead of listed.
const many = 7

// countLargest has the largest group counted if it is large, and puts it after those that "the other 12" excludes.
func (s *story) countLargest() {
	largest := 0
	for i, g := range s.groups {
		if len(g.names) > len(s.groups[largest].names) {
			largest = i
		}
	}
	g := s.groups[largest]
	remarkable := slices.ContainsFunc(g.names, func(name string) bool { return strings.ContainsAny(name, " ✗") })
	if remarkable || len(g.names) < many {
		return
	}
	g.counted = true
	s.groups = append(slices.Delete(s.groups, largest, largest+1), g)
}

// members lists the strategies of a group, or counts them: "all 37", "the other 12".
func (s story) members(g outcomeGroup) string {
	switch {
	case g.counted && len(s.groups) == 1:
		return fmt.Sprintf("all %d", len(g.names))
	case g.counted:
		return fmt.Sprintf("the other %d", len(g.names))
	}
	return strings.Join(g.names, ", ")
}

// writeStories lists the scenarios, each with its outcomes.
func (r *Report) writeStories(out printer) {
	for _, s := range r.stories() {
		out.item(bold, s.scenario+": "+s.title)
		for _, g := range s.groups {
			style := plain
			if g.outcome == Unsafe {
				style = red
			}
			out.WriteString("  ")
			out.item(style, fmt.Sprintf("%s: %s", g, s.members(g)))
		}
		if s.proof != "" {
			out.WriteString("  ")
			out.item(faint, fmt.Sprintf("proof (%s): %s", s.provedBy, s.proof))
		}
	}
}
