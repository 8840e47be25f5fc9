package catalogue_test

import (
	"os"
	"testing"

	"stock/internal/stock/catalogue"
	"stock/internal/stock/stocktest"
)

func TestMain(m *testing.M) { os.Exit(stocktest.Main(m)) }

func TestEveryStrategyKeepsItsClaim(t *testing.T) {
	t.Parallel()
	stocktest.Run(t, catalogue.Strategies, stocktest.NewAddresses(t))
}
