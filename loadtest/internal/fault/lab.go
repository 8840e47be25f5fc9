package fault

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"stock/loadtest/internal/oracle"
	"stock/loadtest/internal/scenario"
	"stock/loadtest/internal/topology"
)

// Times of the replicas that play the stories. They are short, because stories wait for them.
const (
	lease          = 2 * time.Second
	requestTimeout = 3 * time.Second // the least that the service accepts
	clientTimeout  = 2 * requestTimeout
)

// Lab is where stories are played: the victim, which the faults strike, and the survivor, which goes on selling. Both
// use the same stores.
type Lab struct {
	Victim, Survivor *topology.Isolated
	Oracle           *oracle.Oracle
	Service          scenario.Service // of the survivor

	items int64 // used so far: each cell has one of its own
}

// StartLab starts the two replicas beside those of a topology.
func StartLab(ctx context.Context, t *topology.Topology, o *oracle.Oracle) (l *Lab, err error) {
	l = &Lab{Oracle: o}
	options := topology.Options{PausePoints: true, ReplicaArgs: []string{
		"--lease=" + lease.String(), "--request-timeout=" + requestTimeout.String(), "--lock-wait=" + lease.String(),
	}}
	if l.Victim, err = t.StartIsolated(ctx, "victim", options); err != nil {
		return nil, err
	}
	if l.Survivor, err = t.StartIsolated(ctx, "survivor", options); err != nil {
		return nil, errors.Join(err, l.Stop(ctx))
	}
	l.Service = scenario.Service{
		URL: l.Survivor.URL, Admin: l.Survivor.AdminURL, Client: &http.Client{Timeout: 10 * time.Second},
	}
	return l, nil
}

// Stop stops the two replicas.
func (l *Lab) Stop(ctx context.Context) error {
	var errs []error
	for _, r := range []*topology.Isolated{l.Victim, l.Survivor} {
		if r != nil {
			errs = append(errs, r.Stop(ctx))
		}
	}
	return errors.Join(errs...)
}

// repair leaves both replicas as a story should find them: running, reachable, with nothing parked.
func (l *Lab) repair(ctx context.Context) error {
	for _, r := range []*topology.Isolated{l.Victim, l.Survivor} {
		r.MySQL.Pass()
		r.Redis.Pass()
		r.Redlock.Pass()
		if err := r.Continue(); err != nil || r.Ready(ctx) != nil {
			if err := r.Restart(ctx); err != nil {
				return fmt.Errorf("restart the %s after a story: %w", r.Name, err)
			}
		}
		if err := l.admin(ctx, http.MethodDelete, r, "/admin/pauses", nil); err != nil {
			return err
		}
	}
	return nil
}

// parked reports whether a request is parked at a pause point of a replica.
func (l *Lab) parked(ctx context.Context, r *topology.Isolated, request string) (point string, err error) {
	var parked []struct {
		RequestID string `json:"request_id"`
		Point     string `json:"point"`
	}
	if err := l.admin(ctx, http.MethodGet, r, "/admin/pauses", &parked); err != nil {
		return "", err
	}
	for _, p := range parked {
		if p.RequestID == request {
			return p.Point, nil
		}
	}
	return "", nil
}

// admin sends a request to a replica's admin listener and decodes the reply, unless reply is nil.
func (l *Lab) admin(ctx context.Context, method string, r *topology.Isolated, path string, reply any) error {
	request, err := http.NewRequestWithContext(ctx, method, r.AdminURL+path, nil)
	if err != nil {
		return err
	}
	response, err := l.Service.Client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	switch {
	case err != nil:
		return err
	case response.StatusCode != http.StatusOK:
		return fmt.Errorf("%s %s: %s: %s", method, request.URL, response.Status, body)
	case reply == nil:
		return nil
	}
	return json.Unmarshal(body, reply)
}
