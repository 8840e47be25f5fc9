package load

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"golang.org/x/sync/errgroup"
)

// MaxConcurrent is the most requests that a Service sends concurrently. Its client should keep as many connections.
const MaxConcurrent = 8

// Service is a client for everything but deductions.
type Service struct {
	URL    string // of the public listener
	Admin  string // of an admin listener; empty if the lab has none
	Client *http.Client
}

// Strategies returns the service's catalogue.
func (s Service) Strategies(ctx context.Context) ([]Strategy, error) {
	var catalogue struct {
		Strategies []Strategy `json:"strategies"`
	}
	body, err := s.Get(ctx, "/strategies")
	if err == nil {
		err = json.Unmarshal(body, &catalogue)
	}
	if err == nil && len(catalogue.Strategies) == 0 {
		err = fmt.Errorf("the catalogue is empty: is %s the stock service?", s.URL)
	}
	if err != nil {
		return nil, fmt.Errorf("get the strategies: %w", err)
	}
	return catalogue.Strategies, nil
}

// Get requests a path of the public listener.
func (s Service) Get(ctx context.Context, path string) ([]byte, error) {
	return s.do(ctx, http.MethodGet, s.URL+path, nil)
}

// Stock returns the units of each item in a store, for a lab without access to the stores.
func (s Service) Stock(ctx context.Context, store string, goods []int64) (map[int64]int64, error) {
	units := make(map[int64]int64, len(goods))
	for _, id := range goods {
		var item struct {
			Stock *int64 `json:"stock"`
		}
		body, err := s.Get(ctx, fmt.Sprintf("/stock/%d?store=%s", id, url.QueryEscape(store)))
		if err == nil {
			err = json.Unmarshal(body, &item)
		}
		if err == nil && item.Stock == nil {
			err = fmt.Errorf("the reply has no stock: %s", body)
		}
		if err != nil {
			return nil, fmt.Errorf("ask the service for the stock of item %d in %s: %w", id, store, err)
		}
		units[id] = *item.Stock
	}
	return units, nil
}

// SetStock sets the stock of each item in every store of the service.
func (s Service) SetStock(ctx context.Context, units map[int64]int64) error {
	setting, ctx := errgroup.WithContext(ctx)
	setting.SetLimit(MaxConcurrent) // one after another, a thousand items would take longer than their run
	for id, n := range units {
		setting.Go(func() error {
			body := fmt.Appendf(nil, `{"stock":%d}`, n)
			if _, err := s.do(ctx, http.MethodPut, fmt.Sprintf("%s/admin/stock/%d", s.Admin, id), body); err != nil {
				return fmt.Errorf("set the stock of item %d to %d: %w", id, n, err)
			}
			return nil
		})
	}
	return setting.Wait()
}

func (s Service) do(ctx context.Context, method, address string, body []byte) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := s.Client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	reply, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return nil, err
	}
	if response.StatusCode/100 == 2 {
		return reply, nil
	}
	err = fmt.Errorf("%s %s: %s: %s", method, address, response.Status, strings.TrimSpace(string(reply)))
	if response.StatusCode == http.StatusServiceUnavailable || bytes.Contains(reply, []byte("/problems/outcome-unknown")) {
		err = late{err}
	}
	return nil, err
}

// late is the service's answer that a server does not answer it. It is a net.Error.
type late struct{ error }

func (late) Timeout() bool   { return true }
func (late) Temporary() bool { return true }
