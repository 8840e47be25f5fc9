package catalogue_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"stock/internal/stock"
	"stock/internal/stock/catalogue"
	"stock/internal/stock/stocktest"
)

func TestMain(m *testing.M) { os.Exit(stocktest.Main(m)) }

// The account of the service in Redis may touch only what begins with its prefix.
func TestEveryStrategyKeepsItsClaim(t *testing.T) {
	t.Parallel()
	a := stocktest.NewAddresses(t).LimitToPrefix(t, "shop-7:")
	if err := stocktest.NewService(t, a.Connect(t)).Check()[stock.NeedRedis]; err != nil {
		t.Errorf("health: %v", err)
	}
	stocktest.Run(t, catalogue.Strategies, a)
}

func TestCloseLeavesNothingRunning(t *testing.T) {
	a := stocktest.NewAddresses(t) // starts the servers, unless another test has
	before := goleak.IgnoreCurrent()
	t.Run("use every strategy", func(t *testing.T) {
		service := stocktest.NewService(t, a.Connect(t))
		id := service.NewItem(t, 1000)
		for _, strategy := range catalogue.Strategies {
			for _, on := range strategy.Stores {
				stocktest.Sell(t, service.Deducter(t, strategy.Name, on), stock.Request{GoodsID: id, Count: 1})
			}
		}
	})
	goleak.VerifyNone(t, before)
}
