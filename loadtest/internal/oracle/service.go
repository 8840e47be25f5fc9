package oracle

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// Service asks the service itself for its stock. It is the witness of last resort, for a lab that was not told where
// the database is.
type Service struct {
	URL    string // http://host:port
	Client *http.Client
}

// Stock asks the service for the units of each item.
func (s Service) Stock(ctx context.Context, store string, goods []int64) (map[int64]int64, error) {
	units := make(map[int64]int64, len(goods))
	for _, id := range goods {
		stock, err := s.stock(ctx, store, id)
		if err != nil {
			return nil, fmt.Errorf("ask the service for the stock of item %d in %s: %w", id, store, err)
		}
		units[id] = stock
	}
	return units, nil
}

func (s Service) stock(ctx context.Context, store string, id int64) (int64, error) {
	address := fmt.Sprintf("%s/stock/%d?store=%s", strings.TrimSuffix(s.URL, "/"), id, url.QueryEscape(store))
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return 0, err
	}
	response, err := s.Client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	if err != nil {
		return 0, err
	}
	if response.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("%s: %s", response.Status, strings.TrimSpace(string(body)))
	}
	var reply struct {
		Stock *int64 `json:"stock"`
	}
	if err := json.Unmarshal(body, &reply); err != nil || reply.Stock == nil {
		return 0, fmt.Errorf("the reply has no stock: %s", body)
	}
	return *reply.Stock, nil
}
