package httpapi

import (
	"errors"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	"stock/internal/stock"
)

// maxOrderBody has room for the longest order, spread over as many lines of text as JSON tools like to make of it.
const maxOrderBody = 16 << 10 // bytes

// linesOrder is what a client asks for of several goods, as JSON. All but the lines is optional.
type linesOrder struct {
	Lines    []orderLine `json:"lines"`
	Strategy string      `json:"strategy"`
	Store    stock.Store `json:"store"`
	HoldMS   int64       `json:"hold_ms"`
}

type orderLine struct {
	GoodsID int64 `json:"goods_id"`
	Count   int64 `json:"count"`
}

// linesConfirmation is the reply to an order of several goods that was carried out.
type linesConfirmation struct {
	Lines     []confirmedLine `json:"lines"` // one a goods, in ascending order
	Strategy  string          `json:"strategy"`
	Store     stock.Store     `json:"store"`
	Replica   string          `json:"replica"`
	RequestID string          `json:"request_id"`
	Attempts  int             `json:"attempts"`
	WaitedUS  int64           `json:"waited_us"`
	HeldUS    int64           `json:"held_us"`
	EnteredNS int64           `json:"entered_ns"`
	LeftNS    int64           `json:"left_ns"`
}

type confirmedLine struct {
	GoodsID   int64  `json:"goods_id"`
	Count     int64  `json:"count"`
	Remaining int64  `json:"remaining"`
	Token     uint64 `json:"token"`
}

// linesError tells which lines an order was refused for.
type linesError struct {
	error
	goodsID int64
	lines   []int // of the client's order, counted from 0
}

func (e *linesError) Unwrap() error { return e.error }

// order answers POST /stock/orders.
func (a *API) order(w http.ResponseWriter, r *http.Request) {
	started := time.Now()
	inPath := chi.URLParam(r, "strategy")
	a.nameStrategy(w, inPath)
	o, err := readLinesOrder(r)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	if o.Strategy, err = a.chooseStrategy(inPath, o.Strategy); err != nil {
		a.fail(w, r, err)
		return
	}
	a.nameStrategy(w, o.Strategy)
	request, err := o.request()
	if err != nil {
		a.fail(w, r, err)
		return
	}
	if a.pauses != nil {
		if request.Pause, err = a.pauses.fromHeader(r.Header.Get("X-Pause"), requestID(w), request.Lines()[0].GoodsID); err != nil {
			a.fail(w, r, err)
			return
		}
	}
	if request.Key, err = idempotencyKey(r); err == nil {
		err = a.offers[o.Strategy].checkKey(request.Key)
	}
	if err != nil {
		a.fail(w, r, err)
		return
	}
	orderer, on, err := a.Service.ResolveOrders(o.Strategy, o.Store)
	if err != nil {
		a.fail(w, r, a.describeOrderRefusal(err, o, on))
		return
	}

	ctx, cancel := a.timeout(r)
	defer cancel()
	receipt, err := orderer.Order(ctx, request)
	a.offers[o.Strategy].series[on].observe(receipt.Receipt, err, time.Since(started), r.Context().Err() != nil)
	if receipt.Replayed {
		w.Header()["Idempotency-Replayed"] = replayed
	}
	if err != nil {
		a.fail(w, r, a.describeOrderRefusal(err, o, on))
		return
	}
	reply := &linesConfirmation{
		Strategy:  o.Strategy,
		Store:     on,
		Replica:   a.Replica,
		RequestID: requestID(w),
		Attempts:  receipt.Attempts,
		WaitedUS:  receipt.Waited.Microseconds(),
		HeldUS:    receipt.Held.Microseconds(),
		EnteredNS: receipt.Entered,
		LeftNS:    receipt.Left,
	}
	for _, line := range receipt.Lines {
		reply.Lines = append(reply.Lines, confirmedLine{line.GoodsID, int64(line.Count), line.Remaining, line.Token})
	}
	writeJSON(w, http.StatusOK, typeJSON, reply)
}

func readLinesOrder(r *http.Request) (o linesOrder, err error) {
	if r.URL.RawQuery != "" {
		return o, describe(errMalformed, "there is a query: an order of several goods is sent as JSON alone")
	}
	return o, readJSONInto(make([]byte, maxOrderBody+1), r, &o)
}

// request checks the order and makes the service's request of it.
func (o *linesOrder) request() (stock.OrderRequest, error) {
	lines := make([]stock.Line, len(o.Lines))
	for i, line := range o.Lines {
		one := order{GoodsID: line.GoodsID, Count: line.Count, HoldMS: o.HoldMS}
		if err := one.validate(); err != nil {
			return stock.OrderRequest{}, &linesError{err, max(line.GoodsID, 0), []int{i}}
		}
		lines[i] = stock.Line{GoodsID: line.GoodsID, Count: int(line.Count)}
	}
	request, err := stock.NewOrder(lines...)
	if err != nil {
		return request, describe(errMalformed, "%v", err)
	}
	request.Hold = time.Duration(o.HoldMS) * time.Millisecond
	return request, nil
}

// describeOrderRefusal adds what a client may know of a refusal, and the lines that it is about.
func (a *API) describeOrderRefusal(err error, o linesOrder, on stock.Store) error {
	if errors.Is(err, stock.ErrNoOrders) {
		return describe(err, "%v; GET /strategies says which do", err)
	}
	about := order{Strategy: o.Strategy}
	line, ok := errors.AsType[*stock.LineError](err)
	if !ok {
		return a.describeRefusal(err, about, on)
	}
	about.GoodsID = line.GoodsID
	refused := &linesError{error: a.describeRefusal(err, about, on), goodsID: line.GoodsID}
	for i, l := range o.Lines {
		if l.GoodsID == line.GoodsID {
			refused.lines = append(refused.lines, i)
		}
	}
	return refused
}
