package httpapi

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/pprof"
	"strings"

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
	for path, handler := range map[string]http.Handler{
		"/metrics":               promhttp.HandlerFor(a.Registry, promhttp.HandlerOpts{Registry: a.Registry}),
		"/debug/pprof/":          http.HandlerFunc(pprof.Index),
		"/debug/pprof/cmdline":   http.HandlerFunc(pprof.Cmdline),
		"/debug/pprof/profile":   http.HandlerFunc(pprof.Profile),
		"/debug/pprof/symbol":    http.HandlerFunc(pprof.Symbol),
		"/debug/pprof/trace":     http.HandlerFunc(pprof.Trace),
		"/debug/pprof/{profile}": http.HandlerFunc(pprof.Index),
	} {
		r.Method(http.MethodGet, path, a.withProblems(handler))
	}
	return r
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

// withProblems turns the errors of a handler, which are plain text, into problems.
func (a *API) withProblems(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		held := &heldError{ResponseWriter: w}
		next.ServeHTTP(held, r)
		text := strings.TrimSpace(held.text.String())
		switch {
		case held.status < 400:
		case held.status == http.StatusNotFound:
			a.fail(w, r, describe(errNotFound, "%s", text))
		case held.status < 500:
			a.fail(w, r, describe(errMalformed, "%s", text))
		case w.Header().Get("X-Go-Pprof") != "": // another profile of this kind is being taken
			a.fail(w, r, describe(stock.ErrBusy, "%s: try again when that has ended", text))
		default:
			a.fail(w, r, errors.New(text))
		}
	})
}

// heldError keeps an error back and passes everything else on.
type heldError struct {
	http.ResponseWriter
	status int
	text   bytes.Buffer
}

func (h *heldError) Unwrap() http.ResponseWriter { return h.ResponseWriter }

func (h *heldError) WriteHeader(status int) {
	if h.status = status; status < 400 {
		h.ResponseWriter.WriteHeader(status)
	}
}

func (h *heldError) Write(p []byte) (int, error) {
	if h.status >= 400 {
		return h.text.Write(p)
	}
	return h.ResponseWriter.Write(p)
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
