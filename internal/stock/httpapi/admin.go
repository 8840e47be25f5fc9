package httpapi

import (
	"errors"
	"net/http"
	"net/http/pprof"
	"sync"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"stock/internal/origin"
	"stock/internal/stock"
)

// Admin is the handler of the admin listener.
func (a *API) Admin() http.Handler {
	r := a.router()
	r.Use(a.protect)
	r.Put("/admin/stock/{goods_id:-?[0-9]+}", a.handle(http.StatusOK, (*call).setStock))
	r.Post("/admin/stock/{goods_id:-?[0-9]+}/restock", a.handle(http.StatusOK, (*call).restock))
	r.Get("/livez", a.livez)
	r.Get("/readyz", a.readyz(true))
	r.Get("/version", a.getVersion)
	r.Method(http.MethodGet, "/metrics", promhttp.HandlerFor(a.Registry, promhttp.HandlerOpts{Registry: a.Registry}))
	r.Get("/debug/pprof/", pprof.Index)
	r.Get("/debug/pprof/cmdline", pprof.Cmdline)
	r.Get("/debug/pprof/profile", a.oneAtATime(pprof.Profile))
	r.Get("/debug/pprof/symbol", pprof.Symbol)
	r.Get("/debug/pprof/trace", a.oneAtATime(pprof.Trace))
	r.Get("/debug/pprof/{profile}", pprof.Index)
	return r
}

// oneAtATime refuses a profile while another one is being taken, of which a process can take one.
func (a *API) oneAtATime(profile http.HandlerFunc) http.HandlerFunc {
	var taking sync.Mutex
	return func(w http.ResponseWriter, r *http.Request) {
		if !taking.TryLock() {
			a.fail(w, r, describe(stock.ErrBusy, "another profile is being taken: try again when it has ended"))
			return
		}
		defer taking.Unlock()
		profile(w, r)
	}
}

// protect refuses requests that pages in a browser of this network send, because the listener has no login.
func (a *API) protect(next http.Handler) http.Handler {
	policy := origin.Policy{Names: a.AdminNames}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch err := policy.Check(r); {
		case errors.Is(err, origin.ErrHost):
			a.fail(w, r, describe(errMisdirected, "the admin listener has no name like that in Host, %q: use an IP address, "+
				"localhost, a name without a dot, or one of --admin-names", r.Host))
		case errors.Is(err, origin.ErrOrigin):
			a.fail(w, r, errOtherPage)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// setStock sets the units of an item in every configured store and forgets its fencing tokens. A lock service that lost
// its data, and counts from 1 again, is then accepted.
func (c *call) setStock() (any, error) {
	id, err := goodsID(c.r)
	if err != nil {
		return nil, err
	}
	var body struct {
		Stock *int64 `json:"stock"`
	}
	if err := readJSON(c.r, maxBody, &body); err != nil {
		return nil, err
	}
	if body.Stock == nil || *body.Stock < 0 || *body.Stock > stock.MaxStock {
		return nil, describe(errMalformed, "stock must be given: 0 to %d", int64(stock.MaxStock))
	}
	ctx, cancel := c.limited()
	defer cancel()
	return stockReply{GoodsID: id, Stock: *body.Stock}, c.api.inventory.SetStock(ctx, id, *body.Stock)
}

var restocking = details{
	stock.ErrUnknown: "the restock was sent, but its result did not arrive: it may have taken effect; " +
		"read the stock before you try again",
	stock.ErrBusy:        notRestocked,
	stock.ErrUnavailable: notRestocked,
}

const notRestocked = "the store did not answer in time or is not configured; nothing was added; try again later"

// restock adds units to an existing item in one store: MySQL unless ?store= names another. It takes one store only, so
// that the outcome is clear: with several, units could be added to one while the outcome in another is unknown.
func (c *call) restock() (any, error) {
	id, on, err := itemInStore(c.r)
	if err != nil {
		return nil, err
	}
	key, err := idempotencyKey(c.r)
	if err == nil && key != "" {
		err = describe(stock.ErrKeyUnsupported, "a restock is not idempotent and takes no Idempotency-Key; nothing was added")
	}
	if err != nil {
		return nil, err
	}
	var body struct {
		Count int64 `json:"count"`
	}
	if err := readJSON(c.r, maxBody, &body); err != nil {
		return nil, err
	}
	if body.Count < 1 || body.Count > stock.MaxStock {
		return nil, describe(errMalformed, "count is %d or missing: it must be 1 to %d", body.Count, int64(stock.MaxStock))
	}
	ctx, cancel := c.limited()
	defer cancel()
	units, err := c.api.inventory.Restock(ctx, on, id, body.Count)
	if err != nil {
		return nil, restocking.describe(c.describe(err, id, on))
	}
	return stockReply{GoodsID: id, Stock: units, Store: on}, nil
}
