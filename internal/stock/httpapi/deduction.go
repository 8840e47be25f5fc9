package httpapi

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"stock/internal/stock"
)

// deduction is a request for units of one item, as JSON or as a query.
type deduction struct {
	GoodsID int64 `json:"goods_id"`
	Count   int64 `json:"count"`
	terms
}

type deductionReply struct {
	GoodsID   int64  `json:"goods_id"`
	Count     int64  `json:"count"`
	Remaining *int64 `json:"remaining,omitempty"` // nil if the strategy does not tell
	receipt
}

// deduct answers POST /stock/deduct.
func (c *call) deduct() (any, error) {
	var d deduction
	if err := d.read(c.r); err != nil {
		return nil, err
	}
	if err := c.accept(d.terms); err != nil {
		return nil, err
	}
	if err := cmp.Or(checkLine(d.GoodsID, d.Count), c.checkKey()); err != nil {
		return nil, err
	}
	deducter, on, err := c.api.Strategies.Resolve(c.offer.Name, d.Store)
	if err != nil {
		return nil, c.describe(err, d.GoodsID, on)
	}
	var done stock.Receipt
	err = c.carryOut(on, func(ctx context.Context) (stock.Receipt, error) {
		done, err = deducter.Deduct(ctx, stock.Request{
			GoodsID: d.GoodsID,
			Count:   int(d.Count),
			Key:     c.key,
			Hold:    c.hold,
		})
		return done, err
	})
	if err != nil {
		return nil, c.describe(err, d.GoodsID, on)
	}
	reply := &deductionReply{GoodsID: d.GoodsID, Count: d.Count, receipt: c.receipt(on, done)}
	reply.Token = &done.Token
	if on.TellsRemaining() {
		reply.Remaining = &done.Remaining
	}
	return reply, nil
}

// checkLine checks the members of a deduction, or of one line of an order.
func checkLine(goodsID, count int64) error {
	switch {
	case goodsID < 1:
		return describe(errMalformed, "goods_id is %d or missing: it must be at least 1", goodsID)
	case count < 1 || count > stock.MaxCount:
		return describe(errMalformed, "count is %d or missing: it must be 1 to %d", count, stock.MaxCount)
	}
	return nil
}

// read reads the deduction from the body or from the query.
func (d *deduction) read(r *http.Request) error {
	if r.URL.RawQuery == "" {
		if r.ContentLength == 0 {
			return describe(errMalformed, "the request is empty: send JSON, or a query like ?goods_id=1&count=1")
		}
		return readJSON(r, maxBody, d)
	}
	if err := refuseBody(r); err != nil {
		return err
	}
	return d.readQuery(r.URL.RawQuery)
}

// readQuery reads the members from a query, or only those that are allowed.
func (d *deduction) readQuery(query string, allowed ...string) error {
	values, err := url.ParseQuery(query)
	if err != nil {
		return describe(errMalformed, "the query is not well formed")
	}
	for name, given := range values {
		if allowed != nil && !slices.Contains(allowed, name) {
			return describe(errMalformed, "there is no parameter %q here, only %s", name, strings.Join(allowed, ", "))
		}
		if len(given) > 1 {
			return describe(errMalformed, "%s is given %d times", name, len(given))
		}
		var err error
		switch name {
		case "goods_id":
			d.GoodsID, err = strconv.ParseInt(given[0], 10, 64)
		case "count":
			d.Count, err = strconv.ParseInt(given[0], 10, 64)
		case "hold_ms":
			d.HoldMS, err = strconv.ParseInt(given[0], 10, 64)
		case "wait_ms":
			d.WaitMS = new(int64)
			*d.WaitMS, err = strconv.ParseInt(given[0], 10, 64)
		case "strategy":
			d.Strategy = given[0]
		case "store":
			d.Store = stock.Store(given[0])
		default:
			return describe(errMalformed, "there is no parameter %q", name)
		}
		if err != nil {
			return describe(errMalformed, "%s is %q: it must be a whole number", name, given[0])
		}
	}
	return nil
}
