package explore

import (
	"context"
	"errors"
	"slices"

	"stock/loadtest/internal/history"
	"stock/loadtest/internal/load"
	"stock/loadtest/internal/service"
	"stock/loadtest/internal/traffic"
)

// Service is a service of the user, in any language.
type Service struct{ *service.Description }

// CheckService returns an error if a service cannot be explored.
func CheckService(d *service.Description) error {
	switch {
	case len(d.Command) == 0:
		return errors.New("explore needs the command of your service: it starts replicas of its own, whose " +
			"exchanges with its database and Redis it holds")
	case d.OneUnit():
		return errors.New("explore needs {count} in the request: its buyers ask for different counts")
	}
	return nil
}

func (s Service) prepare(ctx context.Context, l *lane) error {
	env, err := l.at.Environment()
	if err != nil {
		return err
	}
	return s.SetUp(ctx, l.db.DB, env)
}

// running is the service on a lane.
func (s Service) running(l *lane) *service.Running {
	r := &service.Running{Description: s.Description, DB: l.db.DB, Redis: l.keys}
	for _, replica := range l.replicas {
		r.URLs = append(r.URLs, replica.URL)
	}
	return r
}

func (s Service) try(ctx context.Context, l *lane) error {
	return load.TrySale(ctx, s.running(l), l.items(), clientTimeout)
}

func (s Service) setStock(ctx context.Context, l *lane, stock map[int64]int64) error {
	return s.running(l).SetStock(ctx, stock)
}

// workloads are those of a service of which nothing is known but how it deducts one item. Nobody knows how it is
// restocked.
func (s Service) workloads(requests int) (own []workload) {
	for _, w := range workloadsOf(requests) {
		isOrder := func(r request) bool { return r.kind == history.Order }
		if w.requests == nil || slices.ContainsFunc(w.requests, isOrder) || w.special != "" && w.name != "same-key" {
			continue
		}
		w.special, w.modelled = "", false // a key is filled into all requests
		w.faults = slices.DeleteFunc(slices.Clone(w.faults), func(name string) bool {
			return slices.Contains([]string{Restocked, StockSet}, name)
		})
		own = append(own, w)
	}
	return own
}

func (s Service) client(l *lane, at int, op history.Op) client {
	return func(ctx context.Context, tell func(string)) (answers, error) {
		load := traffic.Load{Service: s.Description, Keys: s.IdempotencyHeader != "", Timeout: clientTimeout}
		op, err := traffic.SendOne(ctx, l.replicas[at].URL, load, op)
		tell(inWords(op.Outcome, op.Error))
		return answers{ops: []history.Op{op}}, err
	}
}
