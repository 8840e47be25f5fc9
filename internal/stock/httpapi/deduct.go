package httpapi

import (
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/go-chi/chi/v5"

	"stock/internal/stock"
)

// order is what a client asks for, as JSON or as a query. All but the first two are optional.
type order struct {
	GoodsID  int64       `json:"goods_id"`
	Count    int64       `json:"count"`
	Strategy string      `json:"strategy"`
	Store    stock.Store `json:"store"`
	HoldMS   int64       `json:"hold_ms"`
}

// confirmation is the reply to an order that was carried out.
type confirmation struct {
	GoodsID   int64       `json:"goods_id"`
	Count     int64       `json:"count"`
	Remaining *int64      `json:"remaining,omitempty"` // nil where the receipt does not tell
	Strategy  string      `json:"strategy"`
	Store     stock.Store `json:"store"`
	Replica   string      `json:"replica"`
	RequestID string      `json:"request_id"`
	Attempts  int         `json:"attempts"`
	Token     uint64      `json:"token"`
	WaitedUS  int64       `json:"waited_us"`
	HeldUS    int64       `json:"held_us"`
	EnteredNS int64       `json:"entered_ns"`
	LeftNS    int64       `json:"left_ns"`
}

func (a *API) deduct(w http.ResponseWriter, r *http.Request) {
	started := time.Now()
	inPath := chi.URLParam(r, "strategy")
	a.nameStrategy(w, inPath)
	o, err := readOrder(r)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	if o.Strategy, err = a.chooseStrategy(inPath, o.Strategy); err != nil {
		a.fail(w, r, err)
		return
	}
	a.nameStrategy(w, o.Strategy)
	if err := o.validate(); err != nil {
		a.fail(w, r, err)
		return
	}
	request := stock.Request{GoodsID: o.GoodsID, Count: int(o.Count), Hold: time.Duration(o.HoldMS) * time.Millisecond}
	if a.pauses != nil {
		if request.Pause, err = a.pauses.fromHeader(r.Header.Get("X-Pause"), requestID(w), o.GoodsID); err != nil {
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
	deducter, on, err := a.Service.Resolve(o.Strategy, o.Store)
	if err != nil {
		a.fail(w, r, a.describeRefusal(err, o, on))
		return
	}

	ctx, cancel := a.timeout(r)
	defer cancel()
	receipt, err := deducter.Deduct(ctx, request)
	a.offers[o.Strategy].series[on].observe(receipt, err, time.Since(started), r.Context().Err() != nil)
	if receipt.Replayed {
		w.Header()["Idempotency-Replayed"] = replayed
	}
	if err != nil {
		a.fail(w, r, a.describeRefusal(err, o, on))
		return
	}
	var remaining *int64
	if !receipt.Untold {
		remaining = &receipt.Remaining
	}
	writeJSON(w, http.StatusOK, typeJSON, &confirmation{
		GoodsID:   o.GoodsID,
		Count:     o.Count,
		Remaining: remaining,
		Strategy:  o.Strategy,
		Store:     on,
		Replica:   a.Replica,
		RequestID: requestID(w),
		Attempts:  receipt.Attempts,
		Token:     receipt.Token,
		WaitedUS:  receipt.Waited.Microseconds(),
		HeldUS:    receipt.Held.Microseconds(),
		EnteredNS: receipt.Entered,
		LeftNS:    receipt.Left,
	})
}

// nameStrategy sets X-Strategy where there is such a strategy: a name of the client's invention is not sent back.
func (a *API) nameStrategy(w http.ResponseWriter, name string) {
	if o := a.offers[name]; o != nil {
		w.Header()["X-Strategy"] = o.header
	}
}

// chooseStrategy takes the strategy from the path, from the order or from the configuration.
func (a *API) chooseStrategy(inPath, inOrder string) (string, error) {
	name := a.DefaultStrategy
	switch {
	case inPath != "" && inOrder != "" && inPath != inOrder:
		return "", describe(errMalformed, "the path asks for strategy %q and the order for %q", inPath, inOrder)
	case inPath != "":
		name = inPath
	case inOrder != "":
		name = inOrder
	}
	if a.offers[name] == nil {
		return "", describe(stock.ErrUnknownStrategy, "no strategy is named %q", name)
	}
	return name, nil
}

// describeRefusal adds what a client may know of a refusal and the sentinels do not tell.
func (a *API) describeRefusal(err error, o order, on stock.Store) error {
	switch kindOf(err).err {
	case stock.ErrUnknownGoods:
		return describe(err, "goods %d is unknown in store %s", o.GoodsID, on)
	case stock.ErrUnsupportedStore:
		return describe(err, "strategy %s works on %v, not on %q", o.Strategy, a.offers[o.Strategy].Stores, on)
	case stock.ErrUnavailable:
		if reason, ok := a.offers[o.Strategy].Unavailable[on]; ok {
			return describe(err, "strategy %s cannot be used on store %s: %s", o.Strategy, on, reason)
		}
	}
	return err
}

func (o *order) validate() error {
	switch {
	case o.GoodsID < 1:
		return describe(errMalformed, "goods_id is %d or missing: it must be at least 1", o.GoodsID)
	case o.Count < 1 || o.Count > stock.MaxCount:
		return describe(errMalformed, "count is %d or missing: it must be 1 to %d", o.Count, stock.MaxCount)
	case o.HoldMS < 0 || o.HoldMS > stock.MaxHold.Milliseconds():
		return describe(errMalformed, "hold_ms is %d: it must be 0 to %d", o.HoldMS, stock.MaxHold.Milliseconds())
	}
	return nil
}

// readOrder reads the order from the body or from the query, whichever there is.
func readOrder(r *http.Request) (o order, err error) {
	if r.URL.RawQuery == "" {
		if r.ContentLength == 0 {
			return o, describe(errMalformed, "there is no order: send JSON, or a query like ?goods_id=1&count=1")
		}
		return o, readJSON(r, &o)
	}
	if hasBody(r) {
		return o, describe(errMalformed, "there is a body and a query: send the order in one of them")
	}
	return o, o.readQuery(r.URL.RawQuery)
}

func (o *order) readQuery(query string) error {
	values, err := url.ParseQuery(query)
	if err != nil {
		return describe(errMalformed, "the query is not well formed")
	}
	for name, given := range values {
		if len(given) > 1 {
			return describe(errMalformed, "%s is given %d times", name, len(given))
		}
		var err error
		switch name {
		case "goods_id":
			o.GoodsID, err = strconv.ParseInt(given[0], 10, 64)
		case "count":
			o.Count, err = strconv.ParseInt(given[0], 10, 64)
		case "hold_ms":
			o.HoldMS, err = strconv.ParseInt(given[0], 10, 64)
		case "strategy":
			o.Strategy = given[0]
		case "store":
			o.Store = stock.Store(given[0])
		default:
			return describe(errMalformed, "%q is not a parameter of a deduction", name)
		}
		if err != nil {
			return describe(errMalformed, "%s is %q: it must be a whole number", name, given[0])
		}
	}
	return nil
}

// getStock answers GET /stock/{goods_id}.
func (a *API) getStock(w http.ResponseWriter, r *http.Request) {
	id, err := goodsID(r)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	on, err := storeOf(r)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	ctx, cancel := a.timeout(r)
	defer cancel()
	units, err := a.Service.Stock(ctx, on, id)
	if err != nil {
		a.fail(w, r, describeLevel(err, id, on))
		return
	}
	writeJSON(w, http.StatusOK, typeJSON, level{id, units, on})
}

// describeLevel adds what a client may know of why the stock of a goods cannot be had.
func describeLevel(err error, id int64, on stock.Store) error {
	switch kindOf(err).err {
	case stock.ErrUnknownGoods:
		return describe(err, "goods %d is unknown in store %s", id, on)
	case stock.ErrUnsupportedStore:
		return describe(err, "store is %q: there are %v", on, stock.Stores)
	}
	return err
}

// level is how much there is of a goods.
type level struct {
	GoodsID int64       `json:"goods_id"`
	Stock   int64       `json:"stock"`
	Store   stock.Store `json:"store"`
}

// storeOf reads ?store=, the one parameter of the requests that are about the stock itself.
func storeOf(r *http.Request) (stock.Store, error) {
	var o order
	if err := o.readQuery(r.URL.RawQuery); err != nil {
		return "", err
	}
	if o != (order{Store: o.Store}) {
		return "", describe(errMalformed, "beside ?store= there is no parameter")
	}
	if o.Store == "" {
		return stock.Stores[0], nil
	}
	return o.Store, nil
}
