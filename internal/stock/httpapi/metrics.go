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

	reservations, sales *prometheus.CounterVec
}

func newMetrics(registry *prometheus.Registry) *metrics {
	by := []string{"strategy", "store"}
	histogram := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: seconds}, by)
	}
	counter := func(name, help string, by ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, by)
	}
	m := &metrics{
		deductions: counter("stock_deductions_total",
			"Deductions and orders by outcome: done, replayed (answered again for an idempotency key), client-gone "+
				"(the client went away), or the type of the problem.", append(by, "outcome")...),
		duration: histogram("stock_deduction_duration_seconds",
			"Time from request to reply of deductions and orders with any outcome."),
		wait: histogram("stock_lock_wait_seconds",
			"Time until the critical section was entered (done) or the strategy gave up (busy)."),
		hold:    histogram("stock_lock_hold_seconds", "Time inside the critical section, if done."),
		retries: counter("stock_retries_total", "Retries of deductions and orders that are done.", by...),
		problems: counter("stock_http_problems_total",
			"Error replies of both listeners, by type of the problem.", "type"),
		reservations: counter("stock_reservation_requests_total",
			"Requests for reservations by operation (hold, confirm, cancel, read) and outcome: done, or the type of "+
				"the problem.", "operation", "outcome"),
		sales: counter("stock_sale_requests_total",
			"Requests for sales by operation (cancel, read) and outcome: done, replayed (it was cancelled before), or "+
				"the type of the problem.", "operation", "outcome"),
	}
	registry.MustRegister(m.deductions, m.duration, m.wait, m.hold, m.retries, m.problems, m.reservations, m.sales)
	for _, k := range kinds {
		m.problems.WithLabelValues(k.slug) // from 0, so that rates see the first of them, too
	}
	return m
}

// series are the metrics of one strategy on one store.
type series struct {
	outcomes                   *prometheus.CounterVec
	duration, wait, hold       prometheus.Observer
	retries                    prometheus.Counter
	done, replayed, clientGone prometheus.Counter
}

// series returns a function that returns the metrics. Those of a strategy that nobody uses would be most of /metrics,
// so they are made for the first request.
func (m *metrics) series(strategy string, on stock.Store) func() *series {
	by := prometheus.Labels{"strategy": strategy, "store": string(on)}
	outcomes := m.deductions.MustCurryWith(by)
	for _, outcome := range []string{outcomeDone, "busy", "unavailable"} {
		outcomes.WithLabelValues(outcome) // from 0
	}
	return sync.OnceValue(func() *series {
		return &series{
			outcomes:   outcomes,
			duration:   m.duration.With(by),
			wait:       m.wait.With(by),
			hold:       m.hold.With(by),
			retries:    m.retries.With(by),
			done:       outcomes.WithLabelValues(outcomeDone),
			replayed:   outcomes.WithLabelValues(outcomeReplayed),
			clientGone: outcomes.WithLabelValues(outcomeClientGone),
		}
	})
}

// observe counts a deduction or an order that reached its strategy.
func (s *series) observe(receipt stock.Receipt, err error, took time.Duration, clientGone bool) {
	s.duration.Observe(took.Seconds())
	if receipt.Replayed {
		s.replayed.Inc()
		return
	}
	if err == nil {
		s.done.Inc()
		s.wait.Observe(receipt.Waited.Seconds())
		s.hold.Observe(receipt.Held.Seconds())
		if receipt.Attempts > 1 {
			s.retries.Add(float64(receipt.Attempts - 1))
		}
		return
	}
	k := kindOf(err)
	if clientGone && !k.is(stock.ErrUnknown) {
		s.clientGone.Inc()
		return
	}
	if k.is(stock.ErrBusy) {
		// All of its time was waiting. Without these, the histogram would lack the longest waits.
		s.wait.Observe(took.Seconds())
	}
	s.outcomes.WithLabelValues(k.slug).Inc()
}

// collector adds values that are read when they are asked for.
type collector func(context.Context, chan<- prometheus.Metric)

// Describe describes nothing: not all of the values can always be read.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect leaves out what cannot be read. Reporting the error would fail the whole scrape.
func (c collector) Collect(samples chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), health.Limit)
	defer cancel()
	c(ctx, samples)
}

func gauge(value float64, name, help string) prometheus.Metric {
	return prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, nil, nil), prometheus.GaugeValue, value)
}

// backlog exports the sales that are not yet in MySQL. The values are of all replicas together, so every replica
// exports the same ones.
func backlog(admin stream.Admin) collector {
	return func(ctx context.Context, samples chan<- prometheus.Metric) {
		behind, err := admin.Backlog(ctx)
		if err != nil {
			return
		}
		samples <- gauge(float64(behind.Entries), "stock_stream_backlog_entries",
			"Entries in the streams of redis-stream, whose sales are not yet in MySQL, of all replicas together; absent while "+
				"Redis does not answer. Requests that share a call of the script share an entry.")
		samples <- gauge(behind.Age.Seconds(), "stock_stream_backlog_age_seconds",
			"Age of the oldest sale of redis-stream that is not yet in MySQL; 0 if there is none.")
	}
}

// serverStates exports what /readyz says about each configured server.
func serverStates(checker *health.Checker) collector {
	desc := prometheus.NewDesc("stock_server_up",
		"1 if the server answers this replica and takes writes, as in /readyz, or 0.", []string{"server"}, nil)
	return func(_ context.Context, samples chan<- prometheus.Metric) {
		for need, err := range checker.Check() {
			up := 0.0
			if err == nil || errors.Is(err, stock.ErrBusy) { // busy: the connections that the replica has still work
				up = 1
			}
			samples <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, up, string(need))
		}
	}
}

// reservationStats exports what is held. The gauges are of all replicas together, so every replica exports the same
// ones; the others are of this replica.
func reservationStats(reserver stock.Reserver) collector {
	ended := prometheus.NewDesc("stock_reservations_ended_total",
		"Reservations that this replica ended: confirmed, cancelled or expired.", []string{"outcome"}, nil)
	lag := prometheus.NewDesc("stock_reservation_expiry_lag_seconds",
		"Time from the expiry of reservations until this replica put their units back.", nil, nil)
	return func(ctx context.Context, samples chan<- prometheus.Metric) {
		stats, err := reserver.ReservationStats(ctx)
		for state, n := range stats.Ended {
			samples <- prometheus.MustNewConstMetric(ended, prometheus.CounterValue, float64(n), string(state))
		}
		samples <- prometheus.MustNewConstSummary(lag, uint64(stats.Ended[stock.Expired]), stats.Lag.Seconds(), nil)
		if err != nil {
			return
		}
		samples <- gauge(float64(stats.HeldUnits), "stock_reservations_held_units",
			"Units held by reservations, of all replicas together; absent while MySQL does not answer.")
		samples <- gauge(stats.Overdue.Seconds(), "stock_reservations_overdue_seconds",
			"How long units of an expired reservation have not been back in the stock, at most; 0 if there are none.")
	}
}

// countOperation counts what was done with a reservation or a sale. again is whether it had been done before.
func countOperation(requests *prometheus.CounterVec, operation string, again bool, err error) {
	outcome := outcomeDone
	switch {
	case err != nil:
		outcome = kindOf(err).slug
	case again:
		outcome = outcomeReplayed
	}
	requests.WithLabelValues(operation, outcome).Inc()
}
