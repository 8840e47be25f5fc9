package traffic

import (
	"cmp"
	"context"
	"math"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"stock/internal/monotonic"
	"stock/loadtest/internal/history"
)

// run is a Load that is being sent.
type run struct {
	load         Load
	deductHeader []byte // of each deduction, up to its id
	body         []byte // of each request, up to its items
	startedNS    int64
	next         atomic.Int64 // the number of the next request; in an open loop, how many were sent
	users        []user
}

func newRun(d *Driver, load Load) *run {
	d.reserve(load.Users)
	r := &run{
		load:         load,
		deductHeader: d.servers[0].header(http.MethodPost, deductPath),
		body:         bodyPrefix(load),
		users:        make([]user, load.Users),
	}
	for i := range r.users {
		r.users[i] = user{run: r, number: i, connections: d.connections[i], connection: d.connections[i][0]}
	}
	return r
}

// cutWith makes the requests in flight fail as soon as ctx ends. stop ends that.
func (r *run) cutWith(ctx context.Context) (stop func()) {
	var stops []func() bool
	for i := range r.users {
		for _, c := range r.users[i].connections {
			stops = append(stops, context.AfterFunc(ctx, c.cut))
		}
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// Run sends the load and waits until every request is answered or timed out. When ctx ends, requests in flight are
// cut off, so that their outcome is unknown, and Run returns what it has.
func (d *Driver) Run(ctx context.Context, load Load) (Result, error) {
	if err := load.validate(); err != nil {
		return Result{}, err
	}
	r := newRun(d, load)
	if load.Service == nil { // one of the user's may have a process that waits for each connection
		r.connect(ctx)
	}
	stopCutting := r.cutWith(ctx)
	defer stopCutting()
	stopRestocking, err := load.restock(ctx)
	if err != nil {
		return Result{}, err
	}

	cpuBefore := cpuTime()
	result := Result{StartedNS: monotonic.Now()}
	r.startedNS = result.StartedNS
	switch {
	case load.Rate > 0:
		result.Dropped = r.openLoop(ctx)
	case load.HoldFor > 0:
		r.byPairs(ctx, (*pair).buy)
	case load.Retries:
		r.byPairs(ctx, (*pair).retry)
	case load.Cancels:
		r.byPairs(ctx, (*pair).sellAndCancel)
	default:
		r.loop(ctx, len(r.users), func(i, n int) { r.users[i].sendNth(ctx, n, 0) })
	}
	result.EndedNS = monotonic.Now()
	result.CPU = cpuTime() - cpuBefore
	restocks := stopRestocking()

	result.Sent = min(int(r.next.Load()), cmp.Or(load.Requests, math.MaxInt))
	result.Ops = append(r.collect(slices.Grow(result.Ops, result.Sent+len(restocks))), restocks...)
	result.sort()
	result.OutOfTime = load.Requests > 0 && ctx.Err() == nil && result.Sent+result.Dropped < load.Requests
	result.measureLag()
	return result, nil
}

// connect opens the connections that are not open. A failure shows when the first request is sent.
func (r *run) connect(ctx context.Context) {
	deadline := time.Now().Add(r.load.Timeout)
	var wg sync.WaitGroup
	for i := range r.users {
		for _, c := range r.users[i].connections {
			wg.Go(func() { _ = c.open(ctx, deadline) })
		}
	}
	wg.Wait()
}

// collect appends what the users recorded, and frees their memory.
func (r *run) collect(ops []history.Op) []history.Op {
	for i := range r.users {
		ops = r.users[i].appendOps(ops)
	}
	return ops
}

func (r *Result) sort() {
	slices.SortStableFunc(r.Ops, func(a, b history.Op) int { return cmp.Compare(a.SentNS, b.SentNS) })
}

func (r *Result) measureLag() {
	var sum, sent int64
	for i := range r.Ops {
		if r.Ops[i].IntendedNS == 0 {
			continue // closed loop, or a restock
		}
		sent++
		late := r.Ops[i].SentNS - r.Ops[i].IntendedNS
		sum += late
		r.MaxLag = max(r.MaxLag, time.Duration(late))
	}
	if sent > 0 {
		r.MeanLag = time.Duration(sum / sent)
	}
}

// loop is a closed loop: clients take requests until the load is complete or out of time.
func (r *run) loop(ctx context.Context, clients int, send func(client, n int)) {
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			for n, ok := r.take(ctx); ok; n, ok = r.take(ctx) {
				send(i, n)
			}
		})
	}
	wg.Wait()
}

// eachUser has all users do something after the load. What is in flight fails as soon as ctx ends.
func (r *run) eachUser(ctx context.Context, do func(*user)) {
	stopCutting := r.cutWith(ctx)
	defer stopCutting()
	var wg sync.WaitGroup
	for i := range r.users {
		wg.Go(func() { do(&r.users[i]) })
	}
	wg.Wait()
}

// take takes the number of the next request. It returns false if the load is complete or out of time.
func (r *run) take(ctx context.Context) (n int, ok bool) {
	if ctx.Err() != nil || r.load.Duration > 0 && monotonic.Now()-r.startedNS >= int64(r.load.Duration) {
		return 0, false
	}
	n = int(r.next.Add(1) - 1)
	return n, r.load.Requests == 0 || n < r.load.Requests
}

// arrival is a request of an open loop.
type arrival struct {
	number     int
	intendedNS int64
}

// openLoop hands each request to a free client when it is due. If no client is free, the request is dropped and
// counted: to wait for one would turn the open loop into a closed one.
func (r *run) openLoop(ctx context.Context) (dropped int) {
	// There is one token for each free client, so that handing over a request never waits.
	free := make(chan struct{}, len(r.users))
	arrivals := make(chan arrival, len(r.users))
	var wg sync.WaitGroup
	for i := range r.users {
		free <- struct{}{}
		wg.Go(func() {
			for a := range arrivals {
				r.users[i].sendNth(ctx, a.number, a.intendedNS)
				free <- struct{}{}
			}
		})
	}
	interval := float64(time.Second) / r.load.Rate
	for n := 0; ; n++ {
		offset := int64(float64(n) * interval)
		if r.load.Requests > 0 && n >= r.load.Requests || r.load.Duration > 0 && offset >= int64(r.load.Duration) {
			break
		}
		intended := r.startedNS + offset
		if !monotonic.SleepUntil(ctx, intended) {
			break
		}
		select {
		case <-free:
			arrivals <- arrival{number: n, intendedNS: intended}
			r.next.Add(1)
		default:
			dropped++
		}
	}
	close(arrivals)
	wg.Wait()
	return dropped
}
