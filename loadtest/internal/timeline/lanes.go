package timeline

import (
	"cmp"
	"slices"
)

// arrange gives each section a lane of its replica in which no other one is open at the same time. It uses as few lanes
// as possible. Sections that touch may share one. The sections must be sorted by their starts.
func arrange(spans []*span) (lanes []Lane) {
	type open struct {
		replica string
		number  int // of the replica's lanes
		until   int64
	}
	var all []*open
	taken := map[*span]*open{}
	for _, s := range spans {
		numbers := 0
		for _, lane := range all {
			if lane.replica != s.replica {
				continue
			}
			if numbers++; lane.until <= s.start {
				taken[s], lane.until = lane, s.end
				break
			}
		}
		if taken[s] == nil {
			lane := &open{replica: s.replica, number: numbers, until: s.end}
			all, taken[s] = append(all, lane), lane
		}
	}
	slices.SortFunc(all, func(a, b *open) int {
		return cmp.Or(cmp.Compare(rank(a.replica), rank(b.replica)), cmp.Compare(a.replica, b.replica),
			cmp.Compare(a.number, b.number))
	})
	place := map[*open]int{}
	for i, lane := range all {
		place[lane] = i
		lanes = append(lanes, Lane{Replica: lane.replica})
	}
	for _, s := range spans {
		s.lane = place[taken[s]]
	}
	return lanes
}

// rank puts the lanes of replicas first.
func rank(replica string) int { return slices.Index([]string{NoAnswer, Restocks}, replica) }
