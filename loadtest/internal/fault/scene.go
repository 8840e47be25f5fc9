package fault

import (
	"context"
	"maps"
	"slices"
	"time"

	"stock/loadtest/internal/oracle"
)

// Scene is the state of the servers, the requests and the replicas between two steps of a scenario.
type Scene struct {
	oracle.Contents
	// Holders names the client that holds each lock of Contents.Locks. It is empty if nobody does, or nobody knows who.
	Holders  []string `json:"holders"`
	Asking   []Asking `json:"asking"`   // requests without an answer, the first one first
	Victim   string   `json:"victim"`   // the state of the replica
	Survivor string   `json:"survivor"` // the state of the replica
}

// OpenViewer opens a Viewer of the servers on which the scenario is played. The caller closes it.
func (s *Stage) OpenViewer() (*oracle.Viewer, error) {
	return oracle.NewViewer(s.oracleConfig())
}

// Look returns the scene as it is now. It may be called while the scenario is played.
func (s *Stage) Look(ctx context.Context, viewer *oracle.Viewer) Scene {
	names := []string{s.Strategy.Name}
	if s.Strategy.Name == "lock-multi" {
		names = []string{"lock-redis-watchdog", "lock-mysql-getlock"}
	}
	scene := Scene{
		Holders: []string{}, Contents: viewer.Look(ctx, s.Item, names), Asking: []Asking{},
		Victim: s.Victim.State(), Survivor: s.Survivor.State(),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.asking {
		now := *a
		if now.ForMS = time.Since(a.since).Milliseconds(); a.held != nil && happened(a.held.Answered()) {
			now.Held = ""
		}
		scene.Asking = append(scene.Asking, now)
	}
	for _, lock := range scene.Locks {
		scene.Holders = append(scene.Holders, s.holderOf(lock.Owner, scene.Asking))
	}
	return scene
}

// randomOwner is the least length of an owner that is a random value. A shorter one, such as "held", names nobody.
const randomOwner = 16

// holderOf returns the client that holds a lock, as far as that follows from what was seen: a client takes a lock once,
// so a new owner is the client that asks and was not seen as an owner before. The caller holds s.mu.
func (s *Stage) holderOf(owner string, asking []Asking) string {
	known := slices.Collect(maps.Values(s.owners))
	var candidates []string
	for _, a := range asking {
		if !slices.Contains(known, a.Client) {
			candidates = append(candidates, a.Client)
		}
	}
	if len(owner) < randomOwner {
		return ""
	}
	if _, seen := s.owners[owner]; !seen {
		s.owners[owner] = ""
		if len(candidates) == 1 {
			s.owners[owner] = candidates[0]
		}
	}
	return s.owners[owner]
}
