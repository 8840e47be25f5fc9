package httpapi

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"stock/internal/stock"
	"stock/internal/stock/health"
	"stock/internal/stock/stream"
)

// Outcomes in the metrics, in addition to the slugs of the problem types.
const (
	outcomeDone       = "done"
	outcomeClientGone = "client-gone" // refused or failed after the client went away
	outcomeReplayed   = "replayed"    // answered again for an idempotency key
)

// seconds are the buckets of every histogram. They reach from a Redis round trip to more than --lock-wait and
// --request-timeout, which are 10 s and 15 s by default.
var seconds = []float64{
	50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 250e-3, 500e-3, 1, 2.5, 5, 10, 15, 30,
}

type metrics struct {
	deductions *prometheus.CounterVec
	duration   *prometheus.HistogramVec
	wait       *prometheus.HistogramVec
	hold       *prometheus.HistogramVec
	retries    *prometheus.CounterVec
	problems   *prometheus.CounterVec
}

func newMetrics(registry *prometheus.Registry) *metrics {
	by := []string{"strategy", "store"}
	histogram := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: seconds}, by)
	}
	m := &metrics{
		deductions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "stock_deductions_total",
			Help: "Deductions and orders by outcome: done, replayed (answered again for an idempotency key), client-gone " +
				"(the client went away), or the type of the problem.",
		}, append(by, "outcome")),
		duration: histogram("stock_deduction_duration_seconds",
			"Time from request to reply of deductions and orders with any outcome."),
		wait: histogram("stock_lock_wait_seconds",
			"Time until the critical section was entered (done) or the strategy gave up (busy)."),
		hold: histogram("stock_lock_hold_seconds", "Time inside the critical section, if done."),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "stock_retries_total",
			Help: "Retries of deductions and orders that are done.",
		}, by),
		problems: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "stock_http_problems_total",
			Help: "Error replies of both listeners, by type of the problem.",
		}, []string{"type"}),
	}
	registry.MustRegister(m.deductions, m.duration, m.wait, m.hold, m.retries, m.problems)
	return m
}

func (m *metrics) problemCounters() map[string]prometheus.Counter {
	counters := map[string]prometheus.Counter{}
	for _, k := range kinds {
		counters[k.slug] = m.problems.WithLabelValues(k.slug)
	}
	return counters
}

// series are the metrics of one strategy on one store. Those of a strategy that nobody uses would be most of /metrics,
// so they are made for the first request.
type series struct {
	problems *prometheus.CounterVec // by outcome
	used     func() *usedSeries
}

type usedSeries struct {
	duration, wait, hold       prometheus.Observer
	retries                    prometheus.Counter
	done, replayed, clientGone prometheus.Counter
}

func (m *metrics) series(strategy string, on stock.Store) *series {
	by := prometheus.Labels{"strategy": strategy, "store": string(on)}
	outcomes := m.deductions.MustCurryWith(by)
	for _, outcome := range []string{outcomeDone, "busy", "unavailable"} {
		outcomes.WithLabelValues(outcome) // from 0, so that rates see the first of them, too
	}
	return &series{outcomes, sync.OnceValue(func() *usedSeries {
		return &usedSeries{
			duration:   m.duration.With(by),
			wait:       m.wait.With(by),
			hold:       m.hold.With(by),
			retries:    m.retries.With(by),
			done:       outcomes.WithLabelValues(outcomeDone),
			replayed:   outcomes.WithLabelValues(outcomeReplayed),
			clientGone: outcomes.WithLabelValues(outcomeClientGone),
		}
	})}
}

// observe counts a deduction or an order that reached its strategy.
func (s *series) observe(receipt stock.Receipt, err error, took time.Duration, clientGone bool) {
	used := s.used()
	used.duration.Observe(took.Seconds())
	if receipt.Replayed {
		used.replayed.Inc()
		return
	}
	if err == nil {
		used.done.Inc()
		used.wait.Observe(receipt.Waited.Seconds())
		used.hold.Observe(receipt.Held.Seconds())
		if receipt.Attempts > 1 {
			used.retries.Add(float64(receipt.Attempts - 1))
		}
		return
	}
	k := kindOf(err)
	if clientGone && k.err != stock.ErrUnknown {
		used.clientGone.Inc()
		return
	}
	if k.err == stock.ErrBusy {
		// All of its time was waiting. Without these, the histogram would lack the longest waits.
		used.wait.Observe(took.Seconds())
	}
	s.problems.WithLabelValues(k.slug).Inc()
}

// backlog exports the sales that are not yet in MySQL. The values are of all replicas together, so every replica
// exports the same ones.
type backlog struct{ stream stream.Admin }

var (
	backlogEntries = prometheus.NewDesc("stock_stream_backlog_entries",
		"Entries in the streams of redis-stream, whose sales are not yet in MySQL, of all replicas together; absent while "+
			"Redis does not answer. Requests that share a call of the script share an entry.", nil, nil)
	backlogAge = prometheus.NewDesc("stock_stream_backlog_age_seconds",
		"Age of the oldest sale of redis-stream that is not yet in MySQL; 0 if there is none.", nil, nil)
)

func (b backlog) Describe(descs chan<- *prometheus.Desc) {
	descs <- backlogEntries
	descs <- backlogAge
}

func (b backlog) Collect(samples chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), health.Limit)
	defer cancel()
	behind, err := b.stream.Backlog(ctx)
	if err != nil {
		return // reporting the error would fail the whole scrape
	}
	samples <- prometheus.MustNewConstMetric(backlogEntries, prometheus.GaugeValue, float64(behind.Entries))
	samples <- prometheus.MustNewConstMetric(backlogAge, prometheus.GaugeValue, behind.Age.Seconds())
}

// serverStates exports what /readyz says about each configured server.
type serverStates struct{ *health.Checker }

var serverUp = prometheus.NewDesc("stock_server_up",
	"1 if the server answers this replica and takes writes, as in /readyz, or 0.", []string{"server"}, nil)

func (s serverStates) Describe(descs chan<- *prometheus.Desc) { descs <- serverUp }

func (s serverStates) Collect(samples chan<- prometheus.Metric) {
	for need, err := range s.Check() {
		up := 0.0
		if err == nil || errors.Is(err, stock.ErrBusy) { // busy: the connections that the replica has still work
			up = 1
		}
		samples <- prometheus.MustNewConstMetric(serverUp, prometheus.GaugeValue, up, string(need))
	}
}

// reservationMetrics counts what was done with reservations in this replica.
type reservationMetrics struct{ requests *prometheus.CounterVec }

func (a *API) newReservationMetrics() (reservationMetrics, error) {
	m := reservationMetrics{prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "stock_reservation_requests_total",
		Help: "Requests for reservations by operation (hold, confirm, cancel, read) and outcome: done, or the type of " +
			"the problem.",
	}, []string{"operation", "outcome"})}
	a.Registry.MustRegister(m.requests)
	if a.reserver == "" {
		return m, nil
	}
	reserver, _, err := a.Strategies.ResolveReservations(a.reserver, "")
	if err == nil {
		a.Registry.MustRegister(reservationStats{reserver})
	}
	return m, err
}

func (m reservationMetrics) observe(operation string, err error) {
	outcome := outcomeDone
	if err != nil {
		outcome = kindOf(err).slug
	}
	m.requests.WithLabelValues(operation, outcome).Inc()
}

// saleMetrics counts what was done with sales in this replica, after they were made.
type saleMetrics struct{ requests *prometheus.CounterVec }

func newSaleMetrics(registry *prometheus.Registry) saleMetrics {
	m := saleMetrics{prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "stock_sale_requests_total",
		Help: "Requests for sales by operation (cancel, read) and outcome: done, replayed (it was cancelled before), or " +
			"the type of the problem.",
	}, []string{"operation", "outcome"})}
	registry.MustRegister(m.requests)
	return m
}

func (m saleMetrics) observe(operation string, again bool, err error) {
	outcome := outcomeDone
	switch {
	case err != nil:
		outcome = kindOf(err).slug
	case again:
		outcome = outcomeReplayed
	}
	m.requests.WithLabelValues(operation, outcome).Inc()
}

// reservationStats exports what is held. The gauges are of all replicas together, so every replica exports the same
// ones; the others are of this replica.
type reservationStats struct{ stock.Reserver }

var (
	reservedUnits = prometheus.NewDesc("stock_reservations_held_units",
		"Units held by reservations, of all replicas together; absent while MySQL does not answer.", nil, nil)
	reservationsOverdue = prometheus.NewDesc("stock_reservations_overdue_seconds",
		"How long units of an expired reservation have not been back in the stock, at most; 0 if there are none.",
		nil, nil)
	reservationsEnded = prometheus.NewDesc("stock_reservations_ended_total",
		"Reservations that this replica ended: confirmed, cancelled or expired.", []string{"outcome"}, nil)
	reservationLag = prometheus.NewDesc("stock_reservation_expiry_lag_seconds",
		"Time from the expiry of reservations until this replica put their units back.", nil, nil)
)

func (r reservationStats) Describe(descs chan<- *prometheus.Desc) {
	descs <- reservedUnits
	descs <- reservationsOverdue
	descs <- reservationsEnded
	descs <- reservationLag
}

func (r reservationStats) Collect(samples chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), health.Limit)
	defer cancel()
	stats, err := r.ReservationStats(ctx)
	for state, n := range stats.Ended {
		samples <- prometheus.MustNewConstMetric(reservationsEnded, prometheus.CounterValue, float64(n), string(state))
	}
	samples <- prometheus.MustNewConstSummary(reservationLag,
		uint64(stats.Ended[stock.Expired]), stats.Lag.Seconds(), nil)
	if err != nil {
		return // reporting the error would fail the whole scrape
	}
	samples <- prometheus.MustNewConstMetric(reservedUnits, prometheus.GaugeValue, float64(stats.HeldUnits))
	samples <- prometheus.MustNewConstMetric(reservationsOverdue, prometheus.GaugeValue, stats.Overdue.Seconds())
}
