package stocktest

import (
	"slices"
	"testing"

	"stock/internal/stock"
)

// Orders sends orders for a few items to one replica.
type Orders struct {
	Deps    stock.Deps
	Service *Service
	Items   []int64 // in ascending order

	t testing.TB
}

// NewOrders makes a replica, and an item for each of the given stocks.
func NewOrders(t testing.TB, a Addresses, units ...int64) *Orders {
	t.Helper()
	deps := a.Connect(t)
	o := &Orders{Deps: deps, Service: NewService(t, deps), t: t}
	o.Renew(units...)
	return o
}

// Renew replaces the items by new ones with these stocks.
func (o *Orders) Renew(units ...int64) {
	o.t.Helper()
	o.Items = nil
	for _, n := range units {
		o.Items = append(o.Items, o.Service.NewItem(o.t, n))
	}
}

// OnReplica returns the same items on another replica.
func (o *Orders) OnReplica(a Addresses) *Orders {
	o.t.Helper()
	other := NewOrders(o.t, a)
	other.Items = o.Items
	return other
}

// Request makes an order with a line for each item, the last item first.
func (o *Orders) Request(key string, counts ...int) stock.OrderRequest {
	o.t.Helper()
	var lines []stock.Line
	for i, count := range counts {
		lines = append(lines, stock.Line{GoodsID: o.Items[i], Count: count})
	}
	slices.Reverse(lines)
	req, err := stock.NewOrder(lines...)
	if err != nil {
		o.t.Error(err)
	}
	req.Key = key
	return req
}

// Place sends an order without a key.
func (o *Orders) Place(
	strategy string, on stock.Store, pause PauseFunc, counts ...int,
) (stock.OrderReceipt, error) {
	o.t.Helper()
	return o.SendPausing(strategy, on, pause, o.Request("", counts...))
}

// Send sends an order.
func (o *Orders) Send(strategy string, on stock.Store, req stock.OrderRequest) (stock.OrderReceipt, error) {
	return o.SendPausing(strategy, on, nil, req)
}

// SendPausing sends an order with a pause.
func (o *Orders) SendPausing(
	strategy string, on stock.Store, pause PauseFunc, req stock.OrderRequest,
) (stock.OrderReceipt, error) {
	orderer, _, err := o.Service.ResolveOrders(strategy, on)
	if err != nil {
		return stock.OrderReceipt{}, err
	}
	return orderer.Order(WithPause(o.t.Context(), pause), req)
}

// WantLeft checks the stock of each item.
func (o *Orders) WantLeft(on stock.Store, want ...int64) {
	o.t.Helper()
	for i, id := range o.Items {
		o.Service.WantLeft(o.t, on, id, want[i])
	}
}
