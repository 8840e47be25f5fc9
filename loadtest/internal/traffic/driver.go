// Package traffic sends deductions to the service over HTTP and keeps what each client was told.
//
// A closed loop has N users, each of whom sends its next order when the last one was answered. An open loop sends at a
// rate, whatever the service does; a request's latency counts from the time at which it should have been sent, so that a
// stalled service cannot hide its stall (coordinated omission).
package traffic

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"stock/internal/monotonic"
	"stock/loadtest/internal/history"
)

// maxReply bounds what is read of a reply, bytes.
const maxReply = 64 << 10

// Load is one run of requests.
type Load struct {
	Strategy string
	Store    string        // empty: the strategy's default
	Hold     time.Duration // work inside the critical section, whole milliseconds
	Mix      *Mix

	Users    int           // clients side by side; in an open loop, the most requests under way
	Rate     float64       // requests a second of an open loop; 0: closed loop
	Requests int           // exactly so many; 0: until Duration
	Duration time.Duration // no request starts later; 0: until Requests
	Timeout  time.Duration // of each request

	Keys bool // each order's name goes along as its Idempotency-Key

	Restock *Restock // what is put back meanwhile; may be nil

	OrderPrefix string        // orders are called PREFIX-0, PREFIX-1, …
	Answered    *atomic.Int64 // counts finished requests for those who watch; may be nil
}

// Result is what became of a Load.
type Result struct {
	Ops                []history.Op  // in the order of sending
	Sent               int           // deductions of the load itself: without restocks, and what was sent again after it
	StartedNS, EndedNS int64         // CLOCK_MONOTONIC
	Dropped            int           // open loop: not sent, as every client was busy
	MeanLag, MaxLag    time.Duration // open loop: how much later than intended requests were sent
	OutOfTime          bool          // Duration ended the load before Requests
}

// Driver holds the connections to one service. It outlives a Load, so that a measurement does not include connecting.
type Driver struct {
	endpoint  *url.URL
	transport *http.Transport
}

// NewDriver prepares for up to users connections to the service at base, an http URL. It does not connect yet.
func NewDriver(base string, users int) (*Driver, error) {
	endpoint, err := url.Parse(base)
	if err != nil {
		return nil, fmt.Errorf("target %q: %w", base, err)
	}
	if endpoint.Scheme != "http" && endpoint.Scheme != "https" || endpoint.Host == "" {
		return nil, fmt.Errorf("target %q: an address such as http://127.0.0.1:8000 is needed", base)
	}
	endpoint.Path = strings.TrimSuffix(endpoint.Path, "/") + "/stock/deduct"
	return &Driver{
		endpoint: endpoint,
		transport: &http.Transport{
			Proxy:                  nil, // the lab never leaves the host by way of a proxy
			DialContext:            (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
			DisableCompression:     true,
			MaxIdleConns:           users,
			MaxIdleConnsPerHost:    users,            // else connections are closed and opened all the time
			IdleConnTimeout:        30 * time.Second, // shorter than nginx's, so that the server never closes first
			MaxResponseHeaderBytes: maxReply,
			WriteBufferSize:        1 << 10,
			ReadBufferSize:         2 << 10,
		},
	}, nil
}

// Close closes the connections.
func (d *Driver) Close() { d.transport.CloseIdleConnections() }

// Run sends the load and waits until every request is answered or timed out. When ctx ends, requests under way are cut off
// (their outcome is unknown) and Run returns what it has.
func (d *Driver) Run(ctx context.Context, load Load) (Result, error) {
	switch {
	case load.Users < 1:
		return Result{}, fmt.Errorf("%d users: at least 1 is needed", load.Users)
	case load.Requests < 1 && load.Duration <= 0:
		return Result{}, errors.New("neither a number of requests nor a duration is given")
	case load.Rate < 0:
		return Result{}, fmt.Errorf("rate %g: it cannot be negative", load.Rate)
	case load.Timeout <= 0:
		return Result{}, errors.New("requests without a timeout could keep a run for ever")
	}
	run := &run{driver: d, load: load, body: bodyPrefix(load), users: make([]user, load.Users)}
	expected := 0
	if load.Requests > 0 {
		// A share and a quarter: users are not served equally. More than a million would hold memory for nothing.
		expected = min(load.Requests, 1<<20)*5/4/load.Users + 8
	}
	for i := range run.users {
		run.users[i] = user{run: run, number: i, ops: make([]history.Op, 0, expected)}
	}

	result := Result{StartedNS: monotonic.Now()}
	run.startedNS = result.StartedNS
	stopRestocking := run.restock(ctx)
	if load.Rate > 0 {
		run.open(ctx, &result)
	} else {
		run.closed(ctx)
	}
	result.EndedNS = monotonic.Now()
	restocks := stopRestocking()

	total := 0
	for i := range run.users {
		total += len(run.users[i].ops)
	}
	result.Ops = make([]history.Op, 0, total+len(restocks))
	for i := range run.users {
		result.Ops = append(result.Ops, run.users[i].ops...)
		run.users[i].ops = nil
	}
	result.Ops = append(result.Ops, restocks...)
	result.sort()
	result.Sent = total
	result.OutOfTime = load.Requests > 0 && ctx.Err() == nil && result.Sent+result.Dropped < load.Requests
	result.lag()
	return result, nil
}

func (r *Result) sort() {
	slices.SortFunc(r.Ops, func(a, b history.Op) int { return int(a.SentNS - b.SentNS) })
}

func (r *Result) lag() {
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

type run struct {
	driver    *Driver
	load      Load
	body      []byte // the request's body up to its goods
	startedNS int64
	next      atomic.Int64 // the number of the next order
	users     []user
}

// user is one client. Nobody else touches its fields while it runs.
type user struct {
	run    *run
	number int
	ops    []history.Op
	buffer bytes.Buffer

	replica string // that answered last: its name is kept once, not once a request
}

// claim takes the next order's number, unless the load is complete or out of time.
func (r *run) claim(ctx context.Context) (int, bool) {
	if ctx.Err() != nil || r.load.Duration > 0 && monotonic.Now()-r.startedNS >= int64(r.load.Duration) {
		return 0, false
	}
	i := int(r.next.Add(1) - 1)
	return i, r.load.Requests == 0 || i < r.load.Requests
}

func (r *run) closed(ctx context.Context) {
	var wg sync.WaitGroup
	for i := range r.users {
		wg.Go(func() {
			u := &r.users[i]
			for {
				order, ok := r.claim(ctx)
				if !ok {
					return
				}
				u.send(ctx, order, 0)
			}
		})
	}
	wg.Wait()
}

type appointment struct {
	order      int
	intendedNS int64
}

// open hands each order to a free client at its time. Without a free client the order is dropped and counted: to wait for
// one would turn the open loop into a closed one.
func (r *run) open(ctx context.Context, result *Result) {
	// As many tokens as clients: taking one is what "a free client" means, so a hand-over never waits.
	free := make(chan struct{}, len(r.users))
	appointments := make(chan appointment, len(r.users))
	var wg sync.WaitGroup
	for i := range r.users {
		free <- struct{}{}
		wg.Go(func() {
			for a := range appointments {
				r.users[i].send(ctx, a.order, a.intendedNS)
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
			appointments <- appointment{n, intended}
		default:
			result.Dropped++
		}
	}
	close(appointments)
	wg.Wait()
}

// send places one order and records what came of it. It never tries twice.
func (u *user) send(ctx context.Context, order int, intendedNS int64) {
	r := u.run
	goodsID, count := r.load.Mix.At(order)
	u.sendOp(ctx, history.Op{
		Kind: history.Deduct, Client: u.number, Order: r.load.OrderPrefix + "-" + strconv.Itoa(order), GoodsID: goodsID, Count: count,
		IntendedNS: intendedNS,
	})
	if r.load.Answered != nil {
		r.load.Answered.Add(1)
	}
}

// sendOp sends what op asks for, and records it with its answer.
func (u *user) sendOp(ctx context.Context, op history.Op) {
	r := u.run
	id := op.Order
	if op.Again {
		id += "-again"
	}
	body := appendBody(make([]byte, 0, len(r.body)+48), r.body, op.GoodsID, op.Count)

	ctx, cancel := context.WithTimeout(ctx, r.load.Timeout)
	defer cancel()
	request := (&http.Request{
		Method: http.MethodPost,
		URL:    r.driver.endpoint,
		Host:   r.driver.endpoint.Host,
		Header: http.Header{
			"Content-Type": contentType,
			"Accept":       accept,
			"User-Agent":   userAgent,
			"X-Request-Id": {id},
		},
		// Without GetBody the transport can never send a body a second time. Else it would do so by itself for a request with
		// an Idempotency-Key whose connection broke, and the history would know of one request where there were two.
		Body:          io.NopCloser(bytes.NewReader(body)),
		ContentLength: int64(len(body)),
	}).WithContext(ctx)
	if r.load.Keys {
		request.Header["Idempotency-Key"] = []string{op.Order}
	}

	op.SentNS = monotonic.Now()
	// RoundTrip, not Client.Do: no redirect, no cookie, no copy of the headers.
	response, err := r.driver.transport.RoundTrip(request)
	if err == nil {
		u.buffer.Reset()
		_, err = u.buffer.ReadFrom(io.LimitReader(response.Body, maxReply))
		response.Body.Close()
	}
	op.ReceivedNS = monotonic.Now()
	if err != nil {
		op.Outcome, op.Error = history.Unknown, explain(err)
	} else {
		classify(&op, response.StatusCode, response.Header, u.buffer.Bytes())
		u.share(&op)
	}
	u.ops = append(u.ops, op)
}

// mostAgain bounds the orders of a load that are sent again, of those with an answer and of those without.
const mostAgain = 100

// SendAgain sends some orders of a load with Keys once more, and adds what came of it to its result: the answers should be the
// first ones again, and the unknown outcomes become known. Each order is sent by the user who has sent it, as a customer does
// who has lost the answer. It is no part of the load: nothing should be measured any more.
func (d *Driver) SendAgain(ctx context.Context, load Load, result *Result) {
	run := &run{driver: d, load: load, body: bodyPrefix(load), users: make([]user, load.Users)}
	most := max(1, mostAgain/load.Users)
	var (
		chosen            = make([][]history.Op, min(load.Users, mostAgain)) // by user, the latest first
		answered, unknown = make([]int, load.Users), make([]int, load.Users)
	)
	for _, op := range slices.Backward(result.Ops) {
		if op.Kind != history.Deduct || op.Client >= len(chosen) {
			continue
		}
		n := &answered[op.Client]
		switch op.Outcome {
		case history.Sold, history.SoldOut:
		case history.Unknown:
			n = &unknown[op.Client]
		default:
			continue
		}
		if *n++; *n <= most {
			chosen[op.Client] = append(chosen[op.Client], op)
		}
	}
	var wg sync.WaitGroup
	for i, ops := range chosen {
		u := &run.users[i]
		*u = user{run: run, number: i}
		wg.Go(func() {
			for _, op := range ops {
				if ctx.Err() != nil {
					return
				}
				u.sendOp(ctx, history.Op{Kind: op.Kind, Client: op.Client, Order: op.Order, GoodsID: op.GoodsID, Count: op.Count, Again: true})
			}
		})
	}
	wg.Wait()
	for i := range run.users {
		result.Ops = append(result.Ops, run.users[i].ops...)
	}
	result.sort()
}

// share lets go of text that is in memory already.
func (u *user) share(op *history.Op) {
	if op.RequestID == op.Order {
		op.RequestID = op.Order
	}
	if op.Replica != u.replica {
		u.replica = op.Replica
	}
	op.Replica = u.replica
}

// Header values that all requests share: nobody writes to them.
var (
	contentType = []string{"application/json"}
	accept      = []string{"application/json"}
	userAgent   = []string{"stock-loadtest"}
)

func bodyPrefix(load Load) []byte {
	var b strings.Builder
	b.WriteString(`{`)
	if load.Strategy != "" {
		fmt.Fprintf(&b, `"strategy":%q,`, load.Strategy)
	}
	if load.Store != "" {
		fmt.Fprintf(&b, `"store":%q,`, load.Store)
	}
	if load.Hold > 0 {
		fmt.Fprintf(&b, `"hold_ms":%d,`, load.Hold.Milliseconds())
	}
	b.WriteString(`"goods_id":`)
	return []byte(b.String())
}

func appendBody(body, prefix []byte, goodsID, count int64) []byte {
	body = append(body, prefix...)
	body = strconv.AppendInt(body, goodsID, 10)
	body = append(body, `,"count":`...)
	body = strconv.AppendInt(body, count, 10)
	return append(body, '}')
}

// TimedOut is the error of a request that its client gave up waiting for: the service may still be at it.
const TimedOut = "timeout"

// explain names a transport error shortly: a history has thousands of them where a replica died.
func explain(err error) string {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return TimedOut
	case errors.Is(err, context.Canceled):
		return "cancelled"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "connection closed before the reply was complete"
	}
	return err.Error()
}
