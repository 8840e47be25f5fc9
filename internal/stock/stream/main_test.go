package stream_test

import (
	"os"
	"testing"

	"stock/internal/stock/stocktest"
)

func TestMain(m *testing.M) { os.Exit(stocktest.Main(m)) }
