package explore

import (
	"fmt"
	"strings"
)

// stuck is returned when nobody can go on.
type stuck struct{ where string }

func (s stuck) Error() string { return "nobody can go on: " + s.where }

// stuck says where each actor waits that has not ended.
func (s *schedule) stuck() stuck {
	s.mu.Lock()
	defer s.mu.Unlock()
	var parts []string
	for _, a := range s.actors {
		switch {
		case a.answered || !a.started || a.lost:
		case len(a.flying) > 0:
			parts = append(parts, fmt.Sprintf("%s waits in %s", a.name, a.flying[0].Text))
		case len(a.pending) > 0:
			parts = append(parts, fmt.Sprintf("%s repeats %s", a.name, a.pending[0].Text))
		default:
			parts = append(parts, a.name+" waits in its process")
		}
	}
	return stuck{strings.Join(parts, "; ")}
}
