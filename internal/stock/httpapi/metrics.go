package httpapi

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"stock/internal/stock"
)

// Outcomes of a deduction in the metrics, beside the slugs of the problem types.
const (
	outcomeDone     = "done"
	outcomeCanceled = "canceled" // refused or failed after its client had gone away
	outcomeReplayed = "replayed" // the first answer to an idempotency key, given again
)

// seconds are the buckets of every histogram: from a Redis round trip to beyond the longest wait for a lock and the longest
// request, which are 10 s and 15 s unless configured.
var seconds = []float64{50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 250e-3, 500e-3, 1, 2.5, 5, 10, 15, 30}

type metrics struct {
	deductions *prometheus.CounterVec
	duration   *prometheus.HistogramVec
	wait       *prometheus.HistogramVec
	hold       *prometheus.HistogramVec
	retries    *prometheus.CounterVec
	problems   *prometheus.CounterVec
}

func newMetrics(registry *prometheus.Registry, p *pauses) *metrics {
	by := []string{"strategy", "store"}
	histogram := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: seconds}, by)
	}
	m := &metrics{
		deductions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "stock_deductions_total",
			Help: "Deductions by outcome: done, replayed (an idempotency key's first answer again), canceled (the client went away), or the type of the problem.",
		}, append(by, "outcome")),
		duration: histogram("stock_deduction_duration_seconds", "Time from request to reply of a deduction, whatever its outcome."),
		wait:     histogram("stock_lock_wait_seconds", "Time until a deduction entered its critical section (done), or gave up (busy)."),
		hold:     histogram("stock_lock_hold_seconds", "Time that a deduction that is done spent in its critical section."),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "stock_retries_total",
			Help: "Tries beyond the first of deductions that are done.",
		}, by),
		problems: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "stock_http_problems_total",
			Help: "Error replies of both listeners, by type of the problem.",
		}, []string{"type"}),
	}
	registry.MustRegister(m.deductions, m.duration, m.wait, m.hold, m.retries, m.problems)
	if p != nil {
		registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "stock_parked_requests",
			Help: "Requests that wait at a pause point.",
		}, func() float64 { return float64(len(p.list())) }))
	}
	return m
}

func (m *metrics) problemCounters() map[string]prometheus.Counter {
	counters := map[string]prometheus.Counter{}
	for _, k := range kinds {
		counters[k.slug] = m.problems.WithLabelValues(k.slug)
	}
	return counters
}

// series are the metrics of one strategy on one store, looked up once.
type series struct {
	duration, wait, hold     prometheus.Observer
	retries                  prometheus.Counter
	done, replayed, canceled prometheus.Counter
	problems                 *prometheus.CounterVec // by outcome
}

func (m *metrics) series(strategy string, on stock.Store) *series {
	store := string(on)
	return &series{
		duration: m.duration.WithLabelValues(strategy, store),
		wait:     m.wait.WithLabelValues(strategy, store),
		hold:     m.hold.WithLabelValues(strategy, store),
		retries:  m.retries.WithLabelValues(strategy, store),
		done:     m.deductions.WithLabelValues(strategy, store, outcomeDone),
		replayed: m.deductions.WithLabelValues(strategy, store, outcomeReplayed),
		canceled: m.deductions.WithLabelValues(strategy, store, outcomeCanceled),
		problems: m.deductions.MustCurryWith(prometheus.Labels{"strategy": strategy, "store": store}),
	}
}

// observe counts a deduction that reached its strategy.
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
	if clientGone && k.err != stock.ErrUnknown {
		s.canceled.Inc()
		return
	}
	if k.err == stock.ErrBusy {
		// It waited for nothing else. Left out, the longest waits would be missing just when they matter.
		s.wait.Observe(took.Seconds())
	}
	s.problems.WithLabelValues(k.slug).Inc()
}

// backlog exports what is sold and not yet in MySQL. It asks whenever the metrics are asked for: the figures are those of all
// replicas together, and every replica tells the same.
type backlog struct{ service *stock.Service }

var (
	backlogSales = prometheus.NewDesc("stock_stream_backlog_sales",
		"Sales of redis-stream that are not in MySQL yet, of all replicas together; missing while Redis does not answer.", nil, nil)
	backlogAge = prometheus.NewDesc("stock_stream_backlog_age_seconds",
		"Age of the oldest sale of redis-stream that is not in MySQL yet, 0 where there is none.", nil, nil)
)

func (b backlog) Describe(descs chan<- *prometheus.Desc) {
	descs <- backlogSales
	descs <- backlogAge
}

func (b backlog) Collect(samples chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), checkLimit)
	defer cancel()
	behind, err := b.service.Backlog(ctx)
	if err != nil {
		return // an error would take all other metrics along
	}
	samples <- prometheus.MustNewConstMetric(backlogSales, prometheus.GaugeValue, float64(behind.Sales))
	samples <- prometheus.MustNewConstMetric(backlogAge, prometheus.GaugeValue, behind.Age.Seconds())
}
