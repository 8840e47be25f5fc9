package mysql_test

import (
	"testing"

	"stock/internal/stock"
	"stock/internal/stock/catalogue"
	"stock/internal/stock/stocktest"
)

func TestTmpConformance(t *testing.T) {
	a := stocktest.NewAddresses(t, stock.NeedMySQL)
	var list []stock.Strategy
	for _, s := range catalogue.Strategies {
		ok := s.Stores[0] != stock.Redis && s.Lock == nil
		for _, n := range s.Needs {
			ok = ok && (n == stock.NeedMySQL || n == stock.NeedInnoDB)
		}
		if ok {
			list = append(list, s)
		}
	}
	stocktest.Run(t, list, a)
}
