package catalogue_test

import (
	"errors"
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
