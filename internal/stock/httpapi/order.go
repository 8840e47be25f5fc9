package httpapi

import (
	"cmp"
	"context"
	"errors"

	"stock/internal/stock"
)

// order is a request for units of several items, as JSON.
type order struct {
	Lines []orderLine `json:"lines"`
	terms
}

type orderLine struct {
	GoodsID int64 `json:"goods_id"`
	Count   int64 `json:"count"`
}

type orderReply struct {
	Lines []lineReply `json:"lines"` // one per item, in ascending order
	receipt
}

type lineReply struct {
	GoodsID   int64  `json:"goods_id"`
	Count     int64  `json:"count"`
	Remaining int64  `json:"remaining"`
	Token     uint64 `json:"token"`
}

// order answers POST /stock/orders.
func (c *call) order() (any, error) {
	var o order
	if err := readOnlyJSON(c.r, maxOrderBody, &o); err != nil {
		return nil, err
	}
	if err := c.accept(o.terms); err != nil {
		return nil, err
	}
	request, err := o.request()
	if err := cmp.Or(err, c.checkKey()); err != nil {
		return nil, err
	}
	request.Hold, request.Key = c.hold, c.key
	orderer, on, err := c.api.Strategies.ResolveOrders(c.offer.Name, o.Store)
	if err != nil {
		return nil, c.describeOrder(err, o, on)
	}
	var done stock.OrderReceipt
	err = c.carryOut(on, func(ctx context.Context) (stock.Receipt, error) {
		done, err = orderer.Order(ctx, request)
		return done.Receipt, err
	})
	if err != nil {
		return nil, c.describeOrder(err, o, on)
	}
	reply := &orderReply{receipt: c.receipt(on, done.Receipt)}
	for _, line := range done.Lines {
		reply.Lines = append(reply.Lines, lineReply{
			GoodsID:   line.GoodsID,
			Count:     int64(line.Count),
			Remaining: line.Remaining,
			Token:     line.Token,
		})
	}
	return reply, nil
}

// request checks the lines and makes the service's request of them.
func (o *order) request() (stock.OrderRequest, error) {
	lines := make([]stock.Line, len(o.Lines))
	for i, line := range o.Lines {
		if err := checkLine(line.GoodsID, line.Count); err != nil {
			return stock.OrderRequest{}, onLines(err, line.GoodsID, i)
		}
		lines[i] = stock.Line{GoodsID: line.GoodsID, Count: int(line.Count)}
	}
	request, err := stock.NewOrder(lines...)
	if err != nil {
		return request, describe(errMalformed, "%v", err)
	}
	return request, nil
}

// describeOrder adds to an error what the client may know about it, and the lines that caused it.
func (c *call) describeOrder(err error, o order, on stock.Store) error {
	if errors.Is(err, stock.ErrNoOrders) {
		return describe(err, "%v; GET /strategies lists the stores on which a strategy takes orders", err)
	}
	line, ok := errors.AsType[*stock.LineError](err)
	if !ok {
		return c.describe(err, 0, on)
	}
	var lines []int
	for i, l := range o.Lines {
		if l.GoodsID == line.GoodsID {
			lines = append(lines, i)
		}
	}
	return onLines(c.describe(err, line.GoodsID, on), line.GoodsID, lines...)
}
