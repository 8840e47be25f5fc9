package catalogue_test

import (
	"errors"
	"strings"
	"testing"

	"stock/internal/stock"
	"stock/internal/stock/catalogue"
	"stock/internal/stock/stocktest"
)

func TestCatalogueIsValid(t *testing.T) {
	t.Parallel()
	if err := stock.Validate(catalogue.Strategies); err != nil {
		t.Error(err)
	}
}

func TestValidateFindsRowsThatNobodyCouldUse(t *testing.T) {
	t.Parallel()
	good := catalogue.Strategies[0]
	fenced := stocktest.Strategy(t, "lock-redis-fenced")
	for name, test := range map[string]struct {
		spoil func(*stock.Strategy)
		want  string
	}{
		"no name":             {func(s *stock.Strategy) { s.Name = "" }, "row 1 has no name"},
		"duplicate":           {func(s *stock.Strategy) { s.Name = good.Name }, "listed twice"},
		"no summary":          {func(s *stock.Strategy) { s.Summary = "" }, "no summary"},
		"no store":            {func(s *stock.Strategy) { s.Stores = nil }, "no store"},
		"no New":              {func(s *stock.Strategy) { s.New = nil }, "either New or Lock"},
		"no promise":          {func(s *stock.Strategy) { s.Claim.TwoReplicas = "" }, "claim is incomplete"},
		"no word on restocks": {func(s *stock.Strategy) { s.Claim.Restocked = "" }, "claim is incomplete"},
		"a lock without a fence that notices restocks": {
			func(s *stock.Strategy) {
				*s = stocktest.Strategy(t, "lock-redis-watchdog")
				s.Claim.Restocked = stock.Correct
			}, "correct beside restocks if and only if it is fenced",
		},
		"no word on a client's retry": {
			func(s *stock.Strategy) { s.Claim.ClientRetry = "" }, "claim is incomplete",
		},
		"a fence that is not claimed": {
			func(s *stock.Strategy) {
				*s = fenced
				s.Claim.HolderPause = stocktest.Strategy(t, "lock-redis-watchdog").Claim.HolderPause
			}, "late holders if and only if it is fenced",
		},
		"a claim without a fence": {func(s *stock.Strategy) { *s = fenced; s.Fenced = false }, "late holders if and only if it is fenced"},
		"a fence without a lock":  {func(s *stock.Strategy) { s.Fenced = true }, "only a lock can be fenced"},
		"a retry that is answered as before without keys": {
			func(s *stock.Strategy) { s.Claim.ClientRetry = "with an idempotency key: the first answer again" }, "if and only if it is idempotent",
		},
		"keys, and a retry that deducts again": {func(s *stock.Strategy) { s.Idempotent = true }, "if and only if it is idempotent"},
		"a lock around slots":                  {func(s *stock.Strategy) { *s = fenced; s.Stores = []stock.Store{stock.Slots} }, "which slots do not have"},
		"a name too long for a fence":          {func(s *stock.Strategy) { *s = fenced; s.Name = strings.Repeat("x", 33) }, "at most 32"},
	} {
		t.Run(name, func(t *testing.T) {
			bad := good
			bad.Name = "other"
			test.spoil(&bad)
			err := stock.Validate([]stock.Strategy{good, bad})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Validate: %v, want an error about %q", err, test.want)
			}
		})
	}
}

func TestResolve(t *testing.T) {
	t.Parallel()
	a := stocktest.NewAddresses(t)
	deps := a.Connect(t)
	deps.Redis, deps.Redlock = nil, nil
	service := stocktest.NewService(t, deps)
	for _, test := range []struct {
		name  string
		on    stock.Store
		store stock.Store
		err   error
	}{
		{"update", "", stock.MySQL, nil},
		{"update", stock.MySQL, stock.MySQL, nil},
		{"noop", "", stock.NoStore, nil},
		{"update", stock.Redis, stock.Redis, stock.ErrUnsupportedStore},
		{"update", "oracle", "oracle", stock.ErrUnsupportedStore},
		{"lock-redis-lua", stock.MySQL, stock.MySQL, stock.ErrUnavailable},
		{"no-such", "", "", stock.ErrUnknownStrategy},
	} {
		_, on, err := service.Resolve(test.name, test.on)
		if !errors.Is(err, test.err) || on != test.store {
			t.Errorf("Resolve(%q, %q) = %q, %v, want %q, %v", test.name, test.on, on, err, test.store, test.err)
		}
	}
	for _, status := range service.Statuses() {
		if status.Name == "lock-redlock" && status.Unavailable[stock.MySQL] != "not configured: redlock" {
			t.Errorf("lock-redlock is unavailable because of %q", status.Unavailable[stock.MySQL])
		}
	}
}

func TestSetStockReachesEveryStore(t *testing.T) {
	t.Parallel()
	a := stocktest.NewAddresses(t)
	service := stocktest.NewService(t, a.Connect(t))
	const id = 77
	for _, on := range stock.Stores {
		if _, err := service.Stock(t.Context(), on, id); !errors.Is(err, stock.ErrUnknownItem) {
			t.Errorf("Stock on %s before: %v, want unknown goods", on, err)
		}
	}
	for _, units := range []int64{5, 3} {
		if err := service.SetStock(t.Context(), id, units); err != nil {
			t.Fatal(err)
		}
		for _, on := range stock.Stores {
			if got, err := service.Stock(t.Context(), on, id); err != nil || got != units {
				t.Errorf("Stock on %s = %d, %v, want %d", on, got, err, units)
			}
		}
	}
}

func TestSetStockNeedsAStore(t *testing.T) {
	t.Parallel()
	service := stocktest.NewService(t, stock.Deps{})
	if err := service.SetStock(t.Context(), 1, 1); !errors.Is(err, stock.ErrUnavailable) {
		t.Errorf("SetStock: %v, want unavailable", err)
	}
}
