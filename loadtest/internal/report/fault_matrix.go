package report

import (
	"fmt"
	"slices"
	"strings"
)

// outcomeGroup is the strategies for which a scenario ended in the same way.
type outcomeGroup struct {
	Fault // the first of them

	least, longest float64 // seconds that an item was blocked
	names          []string
	times          map[string]int  // by strategy
	failed         map[string]bool // whose claim did not hold
}

// writeScenarios lists the scenarios, each with its outcomes.
func (r *Report) writeScenarios(out printer) {
	for _, scenario := range r.Scenarios() {
		groups, played := r.outcomeGroups(scenario)
		out.item(bold, scenario+": "+groups[0].Title)
		for _, g := range groups {
			style := plain
			if g.Effect == Unsafe {
				style = red
			}
			out.WriteString("  ")
			out.item(style, fmt.Sprintf("%s: %s", g, g.members(played)))
		}
		proof := slices.IndexFunc(r.Faults, func(f Fault) bool { return f.Scenario == scenario && f.Proof != "" })
		if proof >= 0 {
			out.WriteString("  ")
			out.item(faint, fmt.Sprintf("proof (%s): %s", r.Faults[proof].Strategy, r.Faults[proof].Proof))
		}
	}
}

// outcomeGroups groups what came of a scenario, the worst first. played tells how often each strategy has played it.
func (r *Report) outcomeGroups(scenario string) (groups []*outcomeGroup, played map[string]int) {
	played = map[string]int{}
	for _, f := range r.Faults {
		if f.Scenario != scenario {
			continue
		}
		played[f.Strategy]++
		i := slices.IndexFunc(groups, func(g *outcomeGroup) bool {
			return g.Effect == f.Effect && g.Until == f.Until && g.reason() == f.reason()
		})
		if i < 0 {
			i = len(groups)
			groups = append(groups, &outcomeGroup{Fault: f, times: map[string]int{}, failed: map[string]bool{}})
		}
		groups[i].add(f)
	}
	slices.SortStableFunc(groups, func(a, b *outcomeGroup) int { return b.Severity() - a.Severity() })
	return groups, played
}

// reason is why a scenario was skipped; empty if it was not.
func (f Fault) reason() string {
	if f.Effect != Skipped || len(f.Evidence) == 0 {
		return ""
	}
	return f.Evidence[0]
}

func (g *outcomeGroup) add(f Fault) {
	if f.Seconds > 0 && (g.least == 0 || f.Seconds < g.least) {
		g.least = f.Seconds
	}
	g.longest = max(g.longest, f.Seconds)
	if g.times[f.Strategy]++; g.times[f.Strategy] == 1 {
		g.names = append(g.names, f.Strategy)
	}
	g.failed[f.Strategy] = g.failed[f.Strategy] || !f.ClaimHeld && f.Effect != Skipped
}

// String returns the outcome with its time or reason.
func (g *outcomeGroup) String() string {
	least, longest := fmt.Sprintf("%.1f", g.least), fmt.Sprintf("%.1f", g.longest)
	switch {
	case g.Until != "":
		return g.Fault.String()
	case g.longest > 0 && least == longest:
		return fmt.Sprintf("%s %s s", g.Effect, least)
	case g.longest > 0:
		return fmt.Sprintf("%s %s–%s s", g.Effect, least, longest)
	case g.reason() != "":
		return fmt.Sprintf("%s (%s)", g.Effect, g.reason())
	}
	return string(g.Effect)
}

// members lists the strategies of a group, or counts them if they are many and safe.
func (g *outcomeGroup) members(played map[string]int) string {
	const many = 7
	names := slices.Clone(g.names)
	for i, name := range g.names {
		if g.times[name] < played[name] {
			names[i] += fmt.Sprintf(" %d/%d", g.times[name], played[name])
		}
		if g.failed[name] {
			names[i] += " ✗"
		}
	}
	if g.Effect == Safe && len(names) >= many && slices.Equal(names, g.names) {
		return fmt.Sprintf("%d strategies", len(names))
	}
	return strings.Join(names, ", ")
}
