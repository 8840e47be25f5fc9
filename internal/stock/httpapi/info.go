package httpapi

import (
	"errors"
	"log/slog"
	"net/http"

	jsonv2 "github.com/go-json-experiment/json"

	"stock/internal/stock"
)

// listStrategies renders the reply to GET /strategies, which never changes.
func listStrategies(config Config) ([]byte, error) {
	var rows []map[string]any
	for _, s := range config.Strategies.Statuses() {
		rows = append(rows, map[string]any{
			"name":            s.Name,
			"summary":         s.Summary,
			"control":         s.Control,
			"write_behind":    s.WriteBehind,
			"write_through":   s.WriteThrough,
			"claim":           s.Claim,
			"stores":          s.Stores,
			"orders":          s.Orders,
			"reservations":    s.Reservations,
			"needs":           s.NeedsOn(s.Stores[0]),
			"idempotent":      s.Idempotent(),
			"tells_remaining": s.TellsRemaining(),
			"unavailable":     s.Unavailable,
		})
		if s.NoKeys != "" {
			rows[len(rows)-1]["no_keys"] = s.NoKeys
		}
	}
	list := map[string]any{"default": config.DefaultStrategy, "strategies": rows}
	return jsonv2.Marshal(list, jsonv2.Deterministic(true)) // a nil slice becomes []
}

func (a *API) getStrategies(w http.ResponseWriter, _ *http.Request) {
	writeRaw(w, http.StatusOK, typeJSON, a.listing)
}

func (a *API) getVersion(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, typeJSON, a.Version)
}

// livez reports that the process serves requests. It does not check other servers, because restarting this process
// would not help them.
func (a *API) livez(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, typeJSON, struct {
		Status string `json:"status"`
	}{"alive"})
}

// readiness is the reply to GET /readyz.
type readiness struct {
	Status  string               `json:"status"` // ready, unready or draining
	Replica string               `json:"replica"`
	Checks  map[stock.Need]check `json:"checks"`
}

type check struct {
	Status string `json:"status"`           // up, busy or down
	Reason string `json:"reason,omitempty"` // only on the admin listener
}

// readyz reports whether requests should be sent to this replica: every configured server answers and takes writes, and
// the replica is not shutting down. MySQL is busy, not down, if it accepts no further connection; those that the
// replica has still work.
func (a *API) readyz(withReasons bool) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		reply := readiness{Status: "ready", Replica: a.Replica, Checks: map[stock.Need]check{}}
		var down []any
		for need, err := range a.health.Check() {
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
		a.logReadiness(down)
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

// logReadiness logs when the replica becomes unready and when it is ready again, rather than on every request.
func (a *API) logReadiness(down []any) {
	ready := len(down) == 0
	if a.wasReady.Swap(ready) == ready {
		return
	}
	if ready {
		a.Log.Info("ready again")
	} else {
		a.Log.Warn("not ready: a server is down or takes no writes", down...)
	}
}
