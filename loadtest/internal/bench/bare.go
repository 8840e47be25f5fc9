package bench

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
)

// bareOrder and bareReceipt are the JSON of the service.
type bareOrder struct {
	GoodsID  int64  `json:"goods_id"`
	Count    int64  `json:"count"`
	Strategy string `json:"strategy"`
	Store    string `json:"store"`
	HoldMS   int64  `json:"hold_ms"`
}

type bareReceipt struct {
	GoodsID   int64  `json:"goods_id"`
	Count     int64  `json:"count"`
	Remaining int64  `json:"remaining"`
	Strategy  string `json:"strategy"`
	Store     string `json:"store"`
	Replica   string `json:"replica"`
	RequestID string `json:"request_id"`
	Attempts  int    `json:"attempts"`
	Token     uint64 `json:"token"`
	WaitedUS  int64  `json:"waited_us"`
	HeldUS    int64  `json:"held_us"`
	EnteredNS int64  `json:"entered_ns"`
	LeftNS    int64  `json:"left_ns"`
}

// BareHandler decodes and encodes, and does nothing else.
func BareHandler() http.Handler {
	r := chi.NewRouter()
	r.Post("/stock/deduct", func(w http.ResponseWriter, r *http.Request) {
		var o bareOrder
		if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(&bareReceipt{GoodsID: o.GoodsID, Count: o.Count, Strategy: o.Strategy, Store: o.Store,
			Replica: Bare, RequestID: r.Header.Get("X-Request-Id"), Attempts: 1})
	})
	return r
}

// ServeBare serves the bare handler at an address until ctx ends.
func ServeBare(ctx context.Context, address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	// nginx keeps its connections for 60 s.
	server := &http.Server{Handler: BareHandler(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
	context.AfterFunc(ctx, func() { server.Close() })
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
