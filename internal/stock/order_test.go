package stock_test

import (
	"slices"
	"strings"
	"testing"

	"stock/internal/stock"
)

func TestNewOrderSortsTheLinesAndMergesThoseOfOneItem(t *testing.T) {
	t.Parallel()
	given := []stock.Line{
		{GoodsID: 9, Count: 1}, {GoodsID: 10, Count: 5}, {GoodsID: 9, Count: 2}, {GoodsID: 3, Count: 4},
	}
	before := slices.Clone(given)
	req, err := stock.NewOrder(given...)
	want := []stock.Line{{GoodsID: 3, Count: 4}, {GoodsID: 9, Count: 3}, {GoodsID: 10, Count: 5}}
	if err != nil || !slices.Equal(req.Lines(), want) {
		t.Errorf("got %v, %v, want %v", req.Lines(), err, want)
	}
	if !slices.Equal(given, before) {
		t.Errorf("the caller's lines were changed to %v", given)
	}
}

func TestNewOrderRefusesTooManyLinesOrUnits(t *testing.T) {
	t.Parallel()
	hundred := slices.Repeat([]stock.Line{{GoodsID: 1, Count: 1}}, stock.MaxLines)
	if req, err := stock.NewOrder(hundred...); err != nil || len(req.Lines()) != 1 {
		t.Errorf("100 lines: %v, %v, want one merged line", req.Lines(), err)
	}
	for want, lines := range map[string][]stock.Line{
		"has 0 lines":                    nil,
		"has 101 lines":                  append(hundred, stock.Line{GoodsID: 1, Count: 1}),
		"1000001 units of item 7 in all": {{GoodsID: 7, Count: stock.MaxCount}, {GoodsID: 7, Count: 1}},
	} {
		if _, err := stock.NewOrder(lines...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error that contains %q", err, want)
		}
	}
}
