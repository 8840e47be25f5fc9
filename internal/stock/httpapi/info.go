package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"stock/internal/stock"
)

// checkLimit is how long /readyz waits for the servers.
const checkLimit = time.Second

// listStrategies renders the reply of GET /strategies, which never changes.
func listStrategies(config Config) ([]byte, error) {
	type row struct {
		Name        string                 `json:"name"`
		Summary     string                 `json:"summary"`
		Control     bool                   `json:"control"`
		WriteBehind bool                   `json:"write_behind"`
		Claim       stock.Claim            `json:"claim"`
		Stores      []stock.Store          `json:"stores"`
		Orders      []stock.Store          `json:"orders"`
		Needs       []stock.Need           `json:"needs"`
		Idempotent  bool                   `json:"idempotent"`
		Unavailable map[stock.Store]string `json:"unavailable"`

		TellsRemaining bool `json:"tells_remaining"`
	}
	list := struct {
		Default    string `json:"default"`
		Strategies []row  `json:"strategies"`
	}{Default: config.DefaultStrategy}
	for _, s := range config.Service.Statuses() {
		needs := append([]stock.Need{}, s.NeedsOn(s.Stores[0])...) // never null
		orders := append([]stock.Store{}, s.Orders...)
		list.Strategies = append(list.Strategies, row{s.Name, s.Summary, s.Control, s.WriteBehind, s.Claim, s.Stores, orders, needs, s.Idempotent, s.Unavailable, !s.Untold})
	}
	return json.Marshal(list)
}

func (a *API) getStrategies(w http.ResponseWriter, _ *http.Request) {
	writeRaw(w, http.StatusOK, typeJSON, a.strategies)
}

func (a *API) getVersion(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, typeJSON, a.Version)
}

// livez says that the process serves requests. It asks no other server: a restart would not bring that one back.
func (a *API) livez(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, typeJSON, struct {
		Status string `json:"status"`
	}{"alive"})
}

// readiness is the reply of /readyz.
type readiness struct {
	Status  string               `json:"status"` // ready, unready or draining
	Replica string               `json:"replica"`
	Checks  map[stock.Need]check `json:"checks"`
}

type check struct {
	Status string `json:"status"`           // up, busy or down
	Reason string `json:"reason,omitempty"` // for the admin listener alone
}

// readyz says whether requests should be sent here: every configured server answers, and this one is not shutting down.
// A server that could not be asked because all connections to it are at work is busy, not down: were a replica left out for
// that, its share of the load would make the others busy, too.
func (a *API) readyz(withReasons bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), checkLimit)
		defer cancel()
		reply := readiness{Status: "ready", Replica: a.Replica, Checks: map[stock.Need]check{}}
		var down []any
		for need, err := range a.Service.Check(ctx) {
			c := check{Status: "up"}
			switch {
			case errors.Is(err, stock.ErrBusy):
				c.Status = "busy"
			case err != nil:
				c.Status = "down"
				reply.Status = "unready"
				down = append(down, slog.String(string(need), err.Error()))
			}
			if err != nil && withReasons {
				c.Reason = err.Error()
			}
			reply.Checks[need] = c
		}
		a.logReadiness(r, down)
		if a.draining.Load() {
			reply.Status = "draining"
		}
		status := http.StatusOK
		if reply.Status != "ready" {
			status = http.StatusServiceUnavailable
		}
		writeJSON(w, status, typeJSON, &reply)
	}
}

// logReadiness logs when a server goes down and when all are back, not every time that somebody asks.
func (a *API) logReadiness(r *http.Request, down []any) {
	if r.Context().Err() != nil {
		return // the checks failed because nobody waits for them any more
	}
	ready := len(down) == 0
	if a.wasReady.Swap(ready) == ready {
		return
	}
	if ready {
		a.Log.Info("every server answers again")
	} else {
		a.Log.Warn("not ready: a server does not answer", down...)
	}
}
