package httpapi

import (
	"net/http"
	"net/http/pprof"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// maxStock is the largest stock that can be set: JSON readers keep whole numbers exact up to here.
const maxStock = 1<<53 - 1 // units

// Admin is the handler of the admin listener.
func (a *API) Admin() http.Handler {
	r := a.router()
	r.Put("/admin/stock/{goods_id:-?[0-9]+}", a.putStock)
	if a.pauses != nil {
		r.Get("/admin/pauses", a.getPauses)
		r.Delete("/admin/pauses", a.deletePauses)
		r.Delete("/admin/pauses/{request_id}", a.deletePause)
	}
	r.Get("/livez", a.livez)
	r.Get("/readyz", a.readyz(true))
	r.Get("/version", a.getVersion)
	r.Method(http.MethodGet, "/metrics", promhttp.HandlerFor(a.Registry, promhttp.HandlerOpts{Registry: a.Registry}))
	r.Get("/debug/pprof/", pprof.Index)
	r.Get("/debug/pprof/cmdline", pprof.Cmdline)
	r.Get("/debug/pprof/profile", pprof.Profile)
	r.Get("/debug/pprof/symbol", pprof.Symbol)
	r.Get("/debug/pprof/trace", pprof.Trace)
	r.Get("/debug/pprof/{profile}", pprof.Index)
	return r
}

// putStock sets the units of a goods in every configured store, and forgets its fencing tokens there: a lock service that
// lost its data, and counts from the beginning again, is then believed.
func (a *API) putStock(w http.ResponseWriter, r *http.Request) {
	id, err := goodsID(r)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	var body struct {
		Stock *int64 `json:"stock"`
	}
	if err := readJSON(r, &body); err != nil {
		a.fail(w, r, err)
		return
	}
	if body.Stock == nil || *body.Stock < 0 || *body.Stock > maxStock {
		a.fail(w, r, describe(errMalformed, "stock must be given, 0 to %d", maxStock))
		return
	}
	ctx, cancel := a.timeout(r)
	defer cancel()
	if err := a.Service.SetStock(ctx, id, *body.Stock); err != nil {
		a.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, typeJSON, struct {
		GoodsID int64 `json:"goods_id"`
		Stock   int64 `json:"stock"`
	}{id, *body.Stock})
}
