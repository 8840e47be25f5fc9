package catalogue_test

import (
	"errors"
	"strings"
	"testing"

	"stock/internal/must"
	"stock/internal/stock"
	"stock/internal/stock/catalogue"
	"stock/internal/stock/stocktest"
)

func TestCatalogueIsValid(t *testing.T) {
	t.Parallel()
	must.Succeed(t, stock.Validate(catalogue.Strategies))
}

func TestValidateFindsUnusableAndContradictoryRows(t *testing.T) {
	t.Parallel()
	good, fenced := catalogue.Strategies[0], stocktest.Strategy(t, "lock-redis-fenced")
	unfenced := stocktest.Strategy(t, "lock-redis-watchdog")
	for _, test := range []struct {
		name  string
		row   stock.Strategy
		spoil func(*stock.Strategy)
		want  string
	}{
		{"no name", good, func(s *stock.Strategy) { s.Name = "" }, "row 1 has no name"},
		{"the name of another row", good, func(s *stock.Strategy) { s.Name = good.Name }, "listed twice"},
		{"no summary", good, func(s *stock.Strategy) { s.Summary = "" }, "no summary"},
		{"no store", good, func(s *stock.Strategy) { s.Stores = nil }, "no store"},
		{"no constructor", good, func(s *stock.Strategy) { s.New = nil }, "either New or Lock"},
		{
			"no claim for two replicas", good,
			func(s *stock.Strategy) { s.Claim.TwoReplicas = "" }, "claim is incomplete",
		},
		{
			"no claim for restocks", good,
			func(s *stock.Strategy) { s.Claim.Restocked = "" }, "claim is incomplete",
		},
		{
			"no claim for a client's retry", good,
			func(s *stock.Strategy) { s.Claim.ClientRetry = "" }, "claim is incomplete",
		},
		{
			"an effect that does not exist", good,
			func(s *stock.Strategy) { s.Claim.HolderCrash = "explodes" }, "claim is incomplete",
		},
		{
			"correct beside restocks without a fence", unfenced,
			func(s *stock.Strategy) { s.Claim.Restocked = stock.Correct },
			"correct beside restocks if and only if it is fenced",
		},
		{
			"fenced without the claim", fenced,
			func(s *stock.Strategy) { s.Claim.LateWrite = unfenced.Claim.LateWrite },
			"late holders if and only if it is fenced",
		},
		{
			"the claim without a fence", fenced,
			func(s *stock.Strategy) { s.Fenced = false }, "late holders if and only if it is fenced",
		},
		{"a fence without a lock", good, func(s *stock.Strategy) { s.Fenced = true }, "only a lock can be fenced"},
		{
			"claims to replay, but is not idempotent", good,
			func(s *stock.Strategy) { s.Claim.ClientRetry = stock.RetryRepeatsAnswer },
			"if and only if it is idempotent",
		},
		{
			"idempotent, but claims to deduct again", good,
			func(s *stock.Strategy) { s.NoKeys = "" }, "if and only if it is idempotent",
		},
		{
			"a lock around slots", fenced,
			func(s *stock.Strategy) { s.Stores = []stock.Store{stock.Slots} }, "which slots and units do not have",
		},
		{
			"a fence with a long name", fenced,
			func(s *stock.Strategy) { s.Name = strings.Repeat("x", 33) }, "at most 32",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			bad := test.row
			bad.Name = "other"
			test.spoil(&bad)
			err := stock.Validate([]stock.Strategy{good, bad})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Validate: %v, want an error that contains %q", err, test.want)
			}
		})
	}
}

func TestResolve(t *testing.T) {
	t.Parallel()
	deps := stocktest.NewAddresses(t).Connect(t)
	deps.Redis, deps.Redlock = nil, nil
	service := stocktest.NewService(t, deps)
	for _, test := range []struct {
		name    string
		on      stock.Store
		wantOn  stock.Store
		wantErr error
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
		if !errors.Is(err, test.wantErr) || on != test.wantOn {
			t.Errorf("Resolve(%q, %q) = %q, %v, want %q, %v", test.name, test.on, on, err, test.wantOn, test.wantErr)
		}
	}
	for _, status := range service.Statuses() {
		if status.Name == "lock-redlock" && status.Unavailable[stock.MySQL] != "not configured: redlock" {
			t.Errorf("lock-redlock is unavailable because of %q", status.Unavailable[stock.MySQL])
		}
	}
}
