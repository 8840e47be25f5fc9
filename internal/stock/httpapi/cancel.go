package httpapi

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"reflect"

	"github.com/go-chi/chi/v5"
	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"stock/internal/stock"
)

// cancellation is a request to cancel a sale, as JSON or as a query. What is cancelled is a total, so that the same
// request again changes nothing.
type cancellation struct {
	Strategy  string                    `json:"strategy"`
	Store     stock.Store               `json:"store"`
	GoodsID   int64                     `json:"goods_id"`
	Cancelled given[int64]              `json:"cancelled"` // units of the only item
	Lines     given[[]cancellationLine] `json:"lines"`     // with neither, the whole sale is cancelled
}

// given is a member that may be absent, but not null: a client that does not know how many does not mean all.
type given[T any] struct {
	value T
	is    bool
}

// UnmarshalJSONFrom implements jsonv2.UnmarshalerFrom.
func (g *given[T]) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	if d.PeekKind() == 'n' {
		return &jsonv2.SemanticError{JSONKind: 'n', GoType: reflect.TypeFor[T]()}
	}
	g.is = true
	return jsonv2.UnmarshalDecode(d, &g.value)
}

type cancellationLine struct {
	GoodsID   int64 `json:"goods_id"`
	Cancelled int64 `json:"cancelled"`
}

// saleReply tells what became of a sale.
type saleReply struct {
	Key       string          `json:"key"`
	State     stock.SaleState `json:"state"`
	Lines     []saleLine      `json:"lines"` // one per item, in ascending order
	Store     stock.Store     `json:"store"`
	Replica   string          `json:"replica"`
	RequestID string          `json:"request_id"`
}

type saleLine struct {
	GoodsID   int64 `json:"goods_id"`
	Count     int   `json:"count"`
	Cancelled int   `json:"cancelled"`
	GivenBack int   `json:"given_back"`
}

const (
	elsewhere = "If it was sold by another strategy or from another store than the default, name both"
	noKeys    = "the strategy keeps no keys, and so knows no sale by its key; GET /strategies lists those that do"
	selling   = "The request with this key is still being carried out, and may sell. Try again."
)

var (
	reading = details{
		stock.ErrUnknownSale:    "%v. " + elsewhere + ". The request may also still arrive.",
		stock.ErrKeyUnsupported: noKeys,
		stock.ErrKeyReused:      "%v",
		stock.ErrInProgress:     selling,
	}
	cancelling = details{
		stock.ErrMoreThanSold: "%v; nothing was cancelled. GET /stock/sales/{key} tells what was sold.",
		stock.ErrUnknownSale: "%v; nothing was cancelled. " + elsewhere + ". If the request may still arrive, cancel " +
			"everything, without a number: then it sells nothing.",
		stock.ErrKeyUnsupported: noKeys,
		stock.ErrKeyReused:      "%v; nothing was cancelled",
		stock.ErrInProgress:     selling,
		stock.ErrUnknown: "The cancellation was sent, but no result arrived: the sale may or may not be cancelled. " +
			"Send the request again, which tells what happened.",
		stock.ErrBusy:        "The service gave up waiting; the sale is as it was. Try again.",
		stock.ErrUnavailable: "A server that the strategy needs does not answer; the sale is as it was. Try again later.",
	}
)

// find answers GET /stock/sales/{key}.
func (c *call) find() (any, error) {
	var asked cancellation
	if err := cmp.Or(refuseBody(c.r), asked.readQuery(c.r.URL.RawQuery)); err != nil {
		return nil, err
	}
	read := func(ctx context.Context, in stock.Canceller, id stock.SaleID) (stock.Sale, error) {
		return in.Sale(ctx, id)
	}
	return c.withSale("read", reading, asked, read)
}

// cancel answers POST /stock/sales/{key}/cancel.
func (c *call) cancel() (any, error) {
	var asked cancellation
	if err := asked.read(c.r); err != nil {
		return nil, err
	}
	lines, err := asked.lines()
	if err != nil {
		return nil, err
	}
	cancel := func(ctx context.Context, in stock.Canceller, id stock.SaleID) (stock.Sale, error) {
		return in.CancelSale(ctx, stock.CancelRequest{SaleID: id, Lines: lines})
	}
	return c.withSale("cancel", cancelling, asked, cancel)
}

func (c *call) withSale(
	operation string, means details, asked cancellation,
	do func(context.Context, stock.Canceller, stock.SaleID) (stock.Sale, error),
) (any, error) {
	if err := c.choose(asked.Strategy); err != nil {
		return nil, err
	}
	id := stock.SaleID{GoodsID: asked.GoodsID}
	var err error
	if id.Key, err = c.keyInPath(); err != nil {
		return nil, err
	}
	if asked.GoodsID < 0 {
		return nil, describe(errMalformed, "goods_id is %d: it must be at least 1", asked.GoodsID)
	}
	canceller, on, err := c.api.Strategies.ResolveSales(c.offer.Name, asked.Store)
	if err != nil {
		return nil, c.describe(means.describe(err), 0, on)
	}
	ctx, cancel := c.limited()
	defer cancel()
	found, err := do(ctx, canceller, id)
	countOperation(c.api.metrics.sales, operation, found.Replayed, err)
	if err != nil {
		return nil, means.describe(err)
	}
	c.tellReplay(found.Replayed)
	reply := &saleReply{
		Key: found.Key, State: found.State, Lines: []saleLine{},
		Store: on, Replica: c.api.Replica, RequestID: requestID(c.w),
	}
	for _, line := range found.Lines {
		reply.Lines = append(reply.Lines, saleLine{line.GoodsID, line.Count, line.Cancelled, line.GivenBack})
	}
	return reply, nil
}

// keyInPath reads {key}. A key with characters that a path cannot have is escaped there.
func (c *call) keyInPath() (key string, err error) {
	key = chi.URLParam(c.r, "key")
	if c.r.URL.RawPath != "" {
		if key, err = url.PathUnescape(key); err != nil {
			return "", describe(errMalformed, "the key in the path has a malformed escape")
		}
	}
	if key == "" {
		return "", describe(errNotFound, "the key of the sale is missing in the path %s", c.r.URL.Path)
	}
	if !isPrintable(key, ' ', stock.MaxKey) {
		return "", describe(errMalformed, "the key in the path must have 1 to %d printable ASCII characters", stock.MaxKey)
	}
	return key, nil
}

// read reads the cancellation from the body or from the query.
func (c *cancellation) read(r *http.Request) error {
	if r.URL.RawQuery != "" {
		return cmp.Or(refuseBody(r), c.readQuery(r.URL.RawQuery))
	}
	if has, err := hasBody(r); err != nil || !has {
		return err
	}
	return readJSON(r, maxOrderBody, c)
}

func (c *cancellation) readQuery(query string) error {
	var d deduction
	if err := d.readQuery(query, "strategy", "store", "goods_id"); err != nil {
		return err
	}
	c.Strategy, c.Store, c.GoodsID = d.Strategy, d.Store, d.GoodsID
	return nil
}

// lines are the units that are to be cancelled, nil for all.
func (c *cancellation) lines() (lines []stock.Line, err error) {
	asked := c.Lines.value
	switch {
	case c.Cancelled.is && c.Lines.is:
		return nil, describe(errMalformed, "the request has cancelled and lines: use only one of them")
	case c.Cancelled.is:
		asked = []cancellationLine{{c.GoodsID, c.Cancelled.value}}
	case !c.Lines.is:
		return nil, nil
	case len(asked) < 1 || len(asked) > stock.MaxLines:
		return nil, describe(errMalformed, "there are %d lines: there must be 1 to %d; to cancel everything, leave lines out",
			len(asked), stock.MaxLines)
	}
	seen := map[int64]bool{}
	for i, line := range asked {
		switch {
		case c.Lines.is && line.GoodsID < 1:
			err = describe(errMalformed, "goods_id is %d or missing: it must be at least 1", line.GoodsID)
		case seen[line.GoodsID]:
			err = describe(errMalformed, "there are two lines of item %d, with a total each: send one", line.GoodsID)
		case line.Cancelled < 1 || line.Cancelled > stock.MaxCount:
			err = describe(errMalformed, "cancelled is %d or missing: it must be 1 to %d", line.Cancelled, stock.MaxCount)
		}
		if err != nil && c.Lines.is {
			err = onLines(err, line.GoodsID, i)
		}
		if err != nil {
			return nil, err
		}
		seen[line.GoodsID] = true
		lines = append(lines, stock.Line{GoodsID: line.GoodsID, Count: int(line.Cancelled)})
	}
	return lines, nil
}
