package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	"stock/loadtest/internal/traffic"
)

// bareRequest and bareReceipt are the JSON of the service.
type bareRequest struct {
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

// BareHandler decodes a request and encodes a receipt, and does nothing else.
func BareHandler() http.Handler {
	r := chi.NewRouter()
	r.Post("/stock/deduct", func(w http.ResponseWriter, r *http.Request) {
		var request bareRequest
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(&bareReceipt{
			GoodsID: request.GoodsID, Count: request.Count, Strategy: request.Strategy, Store: request.Store,
			Replica: Bare, RequestID: r.Header.Get("X-Request-Id"), Attempts: 1,
		})
	})
	return r
}

// ServeBare serves the bare handler at an address until ctx ends.
func ServeBare(ctx context.Context, address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler:           BareHandler(),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute, // nginx keeps its connections for 60 s
	}
	context.AfterFunc(ctx, func() { server.Close() })
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// bare measures the bare handler with the requests that the strategies get.
func (b *bench) bare(ctx context.Context, _ int) (c cell, err error) {
	driver, err := traffic.NewDriver(b.Users, b.BareURL)
	if err != nil {
		return cell{}, err
	}
	defer driver.Close()
	mix, err := traffic.NewMix(traffic.MixConfig{Goods: 1, MinCount: 1, MaxCount: 1})
	if err != nil {
		return cell{}, err
	}
	load := traffic.Load{
		Strategy: Bare, Store: "none", Mix: mix, Users: b.Users, Timeout: timeout, RequestPrefix: Bare,
	}
	for _, load.Duration = range []time.Duration{warmUp, b.Time} {
		b.warm()
		result, err := driver.Run(ctx, load)
		if err != nil {
			return cell{}, err
		}
		for _, op := range result.Ops {
			if op.Status != http.StatusOK {
				return cell{}, errors.Join(ctx.Err(), fmt.Errorf("a request was answered %d %s", op.Status, op.Error))
			}
		}
		took := time.Duration(result.EndedNS - result.StartedNS)
		c = cell{rate: float64(result.Sent) / took.Seconds(), requests: result.Sent, load: result.CPU}
	}
	return c, nil
}
