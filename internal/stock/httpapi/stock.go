package httpapi

import (
	"cmp"
	"net/http"
	"strconv"
	"strings"

	"github.com/go-chi/chi/v5"

	"stock/internal/stock"
)

// stockReply is the stock of an item.
type stockReply struct {
	GoodsID int64       `json:"goods_id"`
	Stock   int64       `json:"stock"`
	Store   stock.Store `json:"store,omitempty"` // empty for all
}

// stock answers GET /stock/{goods_id}.
func (c *call) stock() (any, error) {
	id, on, err := itemInStore(c.r)
	if err != nil {
		return nil, err
	}
	ctx, cancel := c.limited()
	defer cancel()
	units, err := c.api.inventory.Stock(ctx, on, id)
	if err != nil {
		return nil, c.describe(err, id, on)
	}
	return stockReply{GoodsID: id, Stock: units, Store: on}, nil
}

// goodsID reads {goods_id} from the path.
func goodsID(r *http.Request) (int64, error) {
	text := chi.URLParam(r, "goods_id")
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil || id < 1 {
		return 0, describe(errMalformed, "goods_id is %s: it must be a whole number from 1 to 9223372036854775807", text)
	}
	return id, nil
}

// itemInStore reads {goods_id} from the path and ?store= from the query.
func itemInStore(r *http.Request) (id int64, on stock.Store, err error) {
	if id, err = goodsID(r); err != nil {
		return 0, "", err
	}
	var d deduction
	if err := d.readQuery(r.URL.RawQuery, "store"); err != nil {
		return 0, "", err
	}
	return id, cmp.Or(d.Store, stock.Stores[0]), nil
}

// list names stores in a sentence.
func list(stores []stock.Store) string {
	names := make([]string, len(stores))
	for i, on := range stores {
		names[i] = string(on)
	}
	return strings.Join(names, ", ")
}
