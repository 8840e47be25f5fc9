package httpapi

import (
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/go-chi/chi/v5"
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
	r.Route("/debug/pprof", func(r chi.Router) {
		r.Use(unhurried)
		r.Get("/", pprof.Index)
		r.Get("/cmdline", pprof.Cmdline)
		r.Get("/profile", pprof.Profile)
		r.Get("/symbol", pprof.Symbol)
		r.Get("/trace", pprof.Trace)
		r.Get("/{profile}", pprof.Index)
	})
	return r
}

// unhurried lifts the listener's read timeout, which would cancel a request that is worked on for longer: a profile takes
// as long as it is asked to.
func unhurried(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := http.NewResponseController(w).SetReadDeadline(time.Time{}); err != nil {
			panic(err) // a server's own writer always can
		}
		next.ServeHTTP(w, r)
	})
}

// putStock sets the units of a goods in every configured store.
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
