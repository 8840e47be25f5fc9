// Package httpapi serves package stock over HTTP. It is the only package that knows HTTP.
//
// A replica has two listeners: a public one, behind nginx, and an admin one, which must not be exposed.
package httpapi

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/prometheus/client_golang/prometheus"

	"stock/internal/stock"
	"stock/internal/stock/catalogue"
	"stock/internal/stock/health"
	"stock/internal/stock/inventory"
	"stock/internal/stock/stream"
	"stock/internal/suggest"
)

// Config configures an API. All fields but RequireKey, MaxHold and AdminNames are required.
type Config struct {
	Strategies      *catalogue.Registry
	Deps            stock.Deps // what the strategies were built from
	DefaultStrategy string     // for requests that name none
	Replica         string     // name in every reply
	RequestTimeout  time.Duration
	MaxTTL          time.Duration // longest ttl_ms that is accepted
	RequireKey      bool          // refuse sales without a key by strategies that are idempotent
	MaxHold         time.Duration // longest hold_ms that is accepted: above 0 only in a lab
	AdminNames      []string      // of the admin listener; see origin.Policy
	Registry        *prometheus.Registry
	Version         Version
	Log             *slog.Logger
}

// Version describes the build.
type Version struct {
	Version  string `json:"version"`  // of the module
	Revision string `json:"revision"` // of the repository; empty if not recorded by the build
	Time     string `json:"time"`     // of the revision, RFC 3339
	Modified bool   `json:"modified"` // built from a changed working tree
	Go       string `json:"go"`
}

// API holds what the handlers of both listeners share.
type API struct {
	Config
	replica   []string // value of X-Replica
	inventory *inventory.Inventory
	health    *health.Checker
	offers    map[string]*offer
	names     []string // of all strategies
	reserver  string   // the first strategy that takes reservations; empty if there is none
	listing   []byte   // reply of GET /strategies

	metrics    *metrics
	draining   atomic.Bool
	wasReady   atomic.Bool
	nextWarned atomic.Int64 // earliest time of the next warning, Unix seconds
}

// offer is a strategy, with what all of its requests share.
type offer struct {
	catalogue.Status
	header []string // value of X-Strategy
	series map[stock.Store]func() *series
}

// New returns an API and registers its metrics.
func New(config Config) (*API, error) {
	a := &API{
		Config:    config,
		replica:   []string{config.Replica},
		inventory: inventory.New(config.Deps),
		health:    health.New(config.Deps),
		offers:    map[string]*offer{},
		metrics:   newMetrics(config.Registry),
	}
	a.wasReady.Store(true)
	config.Registry.MustRegister(serverStates(a.health))
	for _, status := range config.Strategies.Statuses() {
		o := &offer{Status: status, header: []string{status.Name}, series: map[stock.Store]func() *series{}}
		for _, on := range status.Stores {
			o.series[on] = a.metrics.series(status.Name, on)
		}
		if status.WriteBehind && len(status.Unavailable) == 0 {
			config.Registry.MustRegister(backlog(stream.NewAdmin(config.Deps)))
		}
		if a.reserver == "" && len(status.Reservations) > 0 {
			a.reserver = status.Name
		}
		a.offers[status.Name] = o
		a.names = append(a.names, status.Name)
	}
	byDefault := a.offers[config.DefaultStrategy]
	if byDefault == nil {
		return nil, fmt.Errorf("there is no strategy %q%s", config.DefaultStrategy,
			cmp.Or(suggest.DidYouMean(config.DefaultStrategy, a.names), ", only "+strings.Join(a.names, ", ")))
	}
	a.DefaultStrategy = byDefault.Name
	if a.reserver != "" {
		reserver, _, err := config.Strategies.ResolveReservations(a.reserver, "")
		if err != nil {
			return nil, err
		}
		config.Registry.MustRegister(reservationStats(reserver))
	}
	var err error
	a.listing, err = listStrategies(a.Config)
	return a, err
}

// Public is the handler of the public listener.
func (a *API) Public() http.Handler {
	r := a.router()
	r.Method(http.MethodGet, "/", http.RedirectHandler("/docs", http.StatusFound))
	deduct, order := a.handle(http.StatusOK, (*call).deduct), a.handle(http.StatusOK, (*call).order)
	r.Post("/stock/deduct", deduct)
	r.Post("/stock/deduct/{strategy}", deduct)
	r.Post("/stock/orders", order)
	r.Post("/stock/orders/{strategy}", order)
	r.Post("/stock/reservations", a.handle(http.StatusCreated, (*call).reserve))
	r.Get("/stock/reservations/{id}", a.onReservation("read", stock.Reserver.Reservation))
	r.Delete("/stock/reservations/{id}", a.onReservation("cancel", stock.Reserver.Cancel))
	r.Post("/stock/reservations/{id}/confirm", a.onReservation("confirm", stock.Reserver.Confirm))
	r.Get("/stock/sales/{key}", a.handle(http.StatusOK, (*call).find))
	r.Post("/stock/sales/{key}/cancel", a.handle(http.StatusOK, (*call).cancel))
	// The pattern does not match /stock/deduct, so that GET on that is answered 405.
	r.Get("/stock/{goods_id:-?[0-9]+}", a.handle(http.StatusOK, (*call).stock))
	r.Get("/strategies", a.getStrategies)
	r.Get("/problems/{slug}", a.handle(http.StatusOK, (*call).problem))
	r.Get("/livez", a.livez)
	r.Get("/healthz", a.livez)
	r.Get("/readyz", a.readyz(false))
	r.Get("/version", a.getVersion)
	r.Get("/openapi.json", getOpenAPI)
	r.Get("/docs", getDocs)
	r.Get("/docs/{asset}", a.getDocsAsset)
	return withTrailers{r}
}

// withTrailers lets handlers see trailers that were not announced. net/http adds them to the original request only,
// which shares a map with the copies that the router makes.
type withTrailers struct{ *chi.Mux }

func (m withTrailers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength < 0 && r.Trailer == nil {
		r.Trailer = http.Header{}
	}
	m.Mux.ServeHTTP(w, r)
}

// router returns a router that answers with a problem if no route matches.
func (a *API) router() *chi.Mux {
	r := chi.NewRouter()
	r.Use(a.frame, middleware.GetHead)
	r.NotFound(func(w http.ResponseWriter, r *http.Request) {
		a.fail(w, r, describe(errNotFound, "there is nothing at %s; see /openapi.json or /docs", r.URL.Path))
	})
	r.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) {
		allowed := allowedMethods(r)
		w.Header().Set("Allow", allowed)
		a.fail(w, r, describe(errMethod, "%s allows %s, not %s", r.URL.Path, allowed, r.Method))
	})
	return r
}

// allowedMethods lists the methods that the path of the request supports.
func allowedMethods(r *http.Request) string {
	path := r.URL.Path
	if r.URL.RawPath != "" {
		path = r.URL.RawPath
	}
	var allowed []string
	routes := chi.RouteContext(r.Context()).Routes
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete} {
		if routes.Match(chi.NewRouteContext(), method, path) {
			allowed = append(allowed, method)
			if method == http.MethodGet {
				allowed = append(allowed, http.MethodHead)
			}
		}
	}
	return strings.Join(allowed, ", ")
}

// frame adds the request id, the replica and the strategy to every reply, and turns a panic into a problem. X-Strategy
// is the default strategy until the request is found to name another.
func (a *API) frame(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get("X-Request-Id")
		if !isPrintable(id, '!', maxRequestID) {
			id = rand.Text()
		}
		header := w.Header()
		header["X-Request-Id"] = []string{id}
		header["X-Replica"] = a.replica
		a.nameStrategy(w, a.DefaultStrategy)
		defer func() {
			switch p := recover(); p {
			case nil:
			case http.ErrAbortHandler:
				panic(p)
			default:
				a.fail(w, r, fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
			}
		}()
		next.ServeHTTP(w, r)
	})
}

// maxRequestID limits the characters of a client's request id, which must be visible to be logged and sent back.
const maxRequestID = 128

// requestID returns the id that frame gave to the request.
func requestID(w http.ResponseWriter) string { return w.Header()["X-Request-Id"][0] }

// nameStrategy sets X-Strategy if the strategy exists: a name that the client made up is not sent back.
func (a *API) nameStrategy(w http.ResponseWriter, name string) {
	if o := a.offers[name]; o != nil {
		w.Header()["X-Strategy"] = o.header
	}
}

// Drain makes /readyz answer 503 from now on. All other requests are served as before.
func (a *API) Drain() { a.draining.Store(true) }
