package stocktest

import (
	"context"
	"os"
	"strings"
	"testing"

	"stock/internal/must"
	"stock/internal/stock"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

// forgetful is a strategy that does not look for keys in Deduct.
type forgetful struct{ stock.Deducter }

func (f forgetful) Deduct(ctx context.Context, req stock.Request) (stock.Receipt, error) {
	req.Key = ""
	return f.Deducter.Deduct(ctx, req)
}

func (f forgetful) Order(ctx context.Context, req stock.OrderRequest) (stock.OrderReceipt, error) {
	return f.Deducter.(stock.Orderer).Order(ctx, req)
}

// forgetfulOfOrders does not look for keys in Order.
type forgetfulOfOrders struct{ stock.Deducter }

func (f forgetfulOfOrders) Order(ctx context.Context, req stock.OrderRequest) (stock.OrderReceipt, error) {
	req.Key = ""
	return f.Deducter.(stock.Orderer).Order(ctx, req)
}

func TestAStrategyThatKeepsNoKeysIsNamedAtOnce(t *testing.T) {
	t.Parallel()
	s := newSubject(t, Strategy(t, "for-update"), stock.MySQL, NewAddresses(t, stock.NeedMySQL))
	must.Succeed(t, s.keepsKeys(t))
	for method, without := range map[string]func(stock.Deducter) stock.Deducter{
		"Deduct": func(d stock.Deducter) stock.Deducter { return forgetful{d} },
		"Order":  func(d stock.Deducter) stock.Deducter { return forgetfulOfOrders{d} },
	} {
		broken := s
		for i := range broken.replicas {
			broken.replicas[i].deducter = without(s.replicas[i].deducter)
		}
		err := broken.keepsKeys(t)
		if want := "for-update keeps no keys: " + method; err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("without keys in %s: %v, want %q", method, err, want)
		}
	}
}
