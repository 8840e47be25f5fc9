package guard_test

import (
	"os"
	"testing"

	"stock/internal/stock"
	"stock/internal/stock/stocktest"
)

func TestMain(m *testing.M) { os.Exit(stocktest.Main(m)) }

// bothStores are the stores that a lock can guard.
var bothStores = []stock.Store{stock.MySQL, stock.Redis}
