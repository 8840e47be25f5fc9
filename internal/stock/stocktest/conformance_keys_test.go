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

func TestAStrategyThatKeepsNoKeysIsNamedAtOnce(t *testing.T) {
	t.Parallel()
	s := newSubject(t, Strategy(t, "for-update"), stock.MySQL, NewAddresses(t, stock.NeedMySQL))
	must.Succeed(t, s.keepsKeys(t))
	for i := range s.replicas {
		s.replicas[i].deducter = forgetful{s.replicas[i].deducter}
	}
	if err := s.keepsKeys(t); err == nil || !strings.HasPrefix(err.Error(), "for-update keeps no keys: ") {
		t.Error(err)
	}
}
