package traffic

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"stock/internal/monotonic"
	"stock/loadtest/internal/history"
)

// run is a Load that is being sent.
type run struct {
	driver    *Driver
	load      Load
	body      []byte // of each request, up to its item
	startedNS int64
	next      atomic.Int64 // the number of the next request
	users     []user
}

// user is one client. Only its own goroutine touches its fields while it runs.
type user struct {
	run     *run
	number  int
	ops     []history.Op
	again   int // of ops: those that were sent again during the load
	buffer  bytes.Buffer
	replica string // that answered last; see intern
}

func newRun(d *Driver, load Load) *run {
	r := &run{driver: d, load: load, body: bodyPrefix(load), users: make([]user, load.Users)}
	for i := range r.users {
		r.users[i] = user{run: r, number: i}
	}
	return r
}

// Run sends the load and waits until every request is answered or timed out. When ctx ends, requests in flight are
// cut off, so that their outcome is unknown, and Run returns what it has.
func (d *Driver) Run(ctx context.Context, load Load) (Result, error) {
	if err := load.validate(); err != nil {
		return Result{}, err
	}
	r := newRun(d, load)
	r.reserve()

	result := Result{StartedNS: monotonic.Now()}
	r.startedNS = result.StartedNS
	stopRestocking := r.restock(ctx)
	switch {
	case load.Rate > 0:
		result.Dropped = r.openLoop(ctx)
	case load.Retries:
		r.closedLoopWithRetries(ctx)
	default:
		r.closedLoop(ctx)
	}
	result.EndedNS = monotonic.Now()
	restocks := stopRestocking()

	result.Sent = r.recorded()
	result.Ops = slices.Grow(result.Ops, result.Sent+len(restocks))
	result.Ops = append(r.collect(result.Ops), restocks...)
	result.sort()
	result.OutOfTime = load.Requests > 0 && ctx.Err() == nil && result.Sent+result.Dropped < load.Requests
	result.measureLag()
	return result, nil
}

// reserve makes room for what each user will record, so that recording does not allocate during the load.
func (r *run) reserve() {
	if r.load.Requests == 0 {
		return
	}
	// A quarter more than an equal share, because users are not served equally. Room for more than a million would
	// waste memory.
	expected := min(r.load.Requests, 1<<20)*5/4/len(r.users) + 8
	for i := range r.users {
		r.users[i].ops = make([]history.Op, 0, expected)
	}
}

// recorded returns how many requests were sent, without those that were sent again.
func (r *run) recorded() (n int) {
	for i := range r.users {
		n += len(r.users[i].ops) - r.users[i].again
	}
	return n
}

// collect appends what the users recorded, and frees their memory.
func (r *run) collect(ops []history.Op) []history.Op {
	for i := range r.users {
		ops = append(ops, r.users[i].ops...)
		r.users[i].ops = nil
	}
	return ops
}

func (r *Result) sort() {
	slices.SortFunc(r.Ops, func(a, b history.Op) int { return cmp.Compare(a.SentNS, b.SentNS) })
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

func (r *run) closedLoop(ctx context.Context) {
	var wg sync.WaitGroup
	for i := range r.users {
		wg.Go(func() {
			for {
				n, ok := r.take(ctx)
				if !ok {
					return
				}
				r.users[i].send(ctx, r.users[i].op(n, 0))
			}
		})
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
				r.users[i].send(ctx, r.users[i].op(a.number, a.intendedNS))
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
		default:
			dropped++
		}
	}
	close(arrivals)
	wg.Wait()
	return dropped
}

// op describes the n-th request of the load. In an open loop, intendedNS is when it should be sent.
func (u *user) op(n int, intendedNS int64) history.Op {
	load := &u.run.load
	op := history.Op{
		Kind:       history.Deduct,
		Client:     u.number,
		Name:       load.RequestPrefix + "-" + strconv.Itoa(n),
		IntendedNS: intendedNS,
	}
	if op.Lines = load.Mix.Order(n); op.Lines != nil {
		op.Kind = history.Order
	} else {
		op.GoodsID, op.Count = load.Mix.At(n)
	}
	return op
}

// send sends a request of the load for the first time.
func (u *user) send(ctx context.Context, op history.Op) {
	u.deduct(ctx, op)
	if load := &u.run.load; load.Answered != nil {
		load.Answered.Add(1)
	}
}

// deduct sends the deduction or order that op describes, and records it with its answer.
func (u *user) deduct(ctx context.Context, op history.Op) {
	r := u.run
	ctx, cancel := context.WithTimeout(ctx, r.load.Timeout)
	defer cancel()
	if header, ok := r.driver.exchange(r.request(ctx, &op), &op, &u.buffer); ok {
		if op.Kind == history.Order {
			readOrderReply(&op, header, u.buffer.Bytes())
		} else {
			readReceipt(&op, header, u.buffer.Bytes())
		}
		u.intern(&op)
	}
	u.ops = append(u.ops, op)
}

// intern drops the answer's own copies of strings that are kept anyway: a run has millions of answers.
func (u *user) intern(op *history.Op) {
	if op.RequestID == op.Name {
		op.RequestID = op.Name
	}
	if op.Replica != u.replica {
		u.replica = op.Replica
	}
	op.Replica = u.replica
}
