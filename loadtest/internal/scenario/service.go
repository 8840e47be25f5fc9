package scenario

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
)

// Strategy is a row of the service's catalogue, as GET /strategies tells it.
type Strategy struct {
	Name        string            `json:"name"`
	Summary     string            `json:"summary"`
	Control     bool              `json:"control"`      // wrong on purpose
	WriteBehind bool              `json:"write_behind"` // sells in its store, and tells MySQL afterwards
	Claim       Claim             `json:"claim"`
	Stores      []string          `json:"stores"` // the first is the default
	Needs       []string          `json:"needs"`
	Idempotent  bool              `json:"idempotent"`  // honours Idempotency-Key, and keeps a ledger
	Unavailable map[string]string `json:"unavailable"` // store -> why it cannot be used here

	TellsRemaining *bool `json:"tells_remaining"` // its receipts say what remains; nil in an older service: all do
}

// Claim is what a strategy promises.
type Claim struct {
	OneReplica  string `json:"one_replica"`
	TwoReplicas string `json:"two_replicas"`
	Restocked   string `json:"restocked"` // in place of correct, where units are put back; empty in an older service: the same
	Exclusive   bool   `json:"exclusive"`
}

// Promises of a Claim that the lab treats in a special way.
const (
	promiseCorrect      = "correct"
	promiseSellsNothing = "sells-nothing"
)

// Promise is the claim for a number of replicas, and for a stock that units are put back into.
func (s Strategy) Promise(replicas int, restocked bool) string {
	promise := s.Claim.TwoReplicas
	if replicas == 1 {
		promise = s.Claim.OneReplica
	}
	if restocked && promise == promiseCorrect && s.Claim.Restocked != "" {
		return s.Claim.Restocked
	}
	return promise
}

// Baseline says that the strategy deducts nothing: it measures all that is not the store.
func (s Strategy) Baseline() bool { return s.Claim.OneReplica == promiseSellsNothing }

// Untold says that the strategy does not tell its buyers what remains.
func (s Strategy) Untold() bool { return s.TellsRemaining != nil && !*s.TellsRemaining }

// AtOnce is how many requests a Service makes side by side at most: its client should keep as many connections.
const AtOnce = 8

// Service is a client for all of the service but its deductions.
type Service struct {
	URL    string // of the public listener
	Admin  string // of an admin listener; empty where the lab has none
	Client *http.Client
}

// Strategies asks for the catalogue.
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
		return nil, fmt.Errorf("ask for the strategies: %w", err)
	}
	return catalogue.Strategies, nil
}

// Get asks the public listener for a path.
func (s Service) Get(ctx context.Context, path string) ([]byte, error) {
	return s.do(ctx, http.MethodGet, s.URL+path, nil)
}

// SetStock sets the units of each goods in every store of the service.
func (s Service) SetStock(ctx context.Context, units map[int64]int64) error {
	setting, ctx := errgroup.WithContext(ctx)
	setting.SetLimit(AtOnce) // one after the other, a thousand goods would take longer than their run
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
	if response.StatusCode/100 != 2 {
		return nil, fmt.Errorf("%s %s: %s: %s", method, address, response.Status, strings.TrimSpace(string(reply)))
	}
	return reply, nil
}

// Choice is a strategy and the store that it runs on.
type Choice struct {
	Strategy Strategy
	Store    string
}

// Choose picks the strategies to run from the catalogue: those of names, or every available one where names is empty, on
// store, or each on its default store where store is empty. The baseline is always among them, as the measure of the rest.
// Left out are those that cannot run here: the reasons are returned, unless they were asked for by name, which is an error.
func Choose(catalogue []Strategy, names []string, store string) (choices []Choice, leftOut []string, err error) {
	known := make([]string, len(catalogue))
	for i, s := range catalogue {
		known[i] = s.Name
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, nil, fmt.Errorf("no strategy is named %q; there are %s", name, strings.Join(known, ", "))
		}
	}
	for _, s := range catalogue {
		asked := slices.Contains(names, s.Name)
		if len(names) > 0 && !asked && !s.Baseline() {
			continue
		}
		on, why := s.on(store)
		switch {
		case why == "":
			choices = append(choices, Choice{s, on})
		case asked:
			return nil, nil, fmt.Errorf("strategy %s cannot run here: %s", s.Name, why)
		default:
			leftOut = append(leftOut, s.Name+": "+why)
		}
	}
	if len(choices) == 0 {
		return nil, nil, fmt.Errorf("no strategy can run here: %s", strings.Join(leftOut, "; "))
	}
	return choices, leftOut, nil
}

// on finds the store to run on, or why there is none.
func (s Strategy) on(store string) (on, why string) {
	switch {
	case len(s.Stores) == 0:
		return "", "it works on no store"
	case store == "" || s.Baseline():
		on = s.Stores[0]
	case slices.Contains(s.Stores, store):
		on = store
	default:
		return "", fmt.Sprintf("it works on %s, not on %s", strings.Join(s.Stores, " and "), store)
	}
	return on, s.Unavailable[on]
}
