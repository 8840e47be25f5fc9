// Package traffic sends deductions to the service over HTTP and records what each client was told.
//
// In a closed loop, each of N users sends its next request when the last one was answered. In an open loop, requests
// are sent at a rate, whatever the service does. Their latency counts from the time at which they should have been
// sent, so that a stalled service cannot hide its stall (coordinated omission).
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
	"strings"
	"sync/atomic"
	"time"

	"stock/internal/monotonic"
	"stock/loadtest/internal/history"
)

// maxReply is how much of a reply is read, in bytes.
const maxReply = 64 << 10

// Load is what is sent to the service in one run.
type Load struct {
	Strategy string
	Store    string        // empty: the strategy's default
	Hold     time.Duration // work inside the critical section, in whole milliseconds
	Mix      *Mix

	Users    int           // concurrent clients; in an open loop, the most requests in flight
	Rate     float64       // requests per second of an open loop; 0: closed loop
	Requests int           // the number of requests; 0: until Duration
	Duration time.Duration // no request starts later; 0: until Requests
	Timeout  time.Duration // of each request

	Keys    bool // send the name of each request as its Idempotency-Key
	Retries bool // send some requests again meanwhile; needs Keys, a closed loop and an even number of Users

	Restock *Restock // what is put back meanwhile; may be nil

	RequestPrefix string        // requests are named PREFIX-0, PREFIX-1, …
	Answered      *atomic.Int64 // counts finished requests, to show progress; may be nil
}

func (l Load) validate() error {
	switch {
	case l.Users < 1:
		return fmt.Errorf("users %d: must be at least 1", l.Users)
	case l.Requests < 1 && l.Duration <= 0:
		return errors.New("a load needs a number of requests or a duration")
	case l.Rate < 0:
		return fmt.Errorf("rate %g: must not be negative", l.Rate)
	case l.Retries && (!l.Keys || l.Rate > 0 || l.Users%2 != 0):
		return errors.New("requests are sent again only with keys, in a closed loop, by pairs of users")
	case l.Timeout <= 0:
		return errors.New("a load needs a timeout, because requests without one could keep it from ending")
	}
	return nil
}

// Result is what came of a Load.
type Result struct {
	Ops                []history.Op  // by the time of sending
	Sent               int           // deductions of the load itself, without restocks and what SendAgain sent
	StartedNS, EndedNS int64         // CLOCK_MONOTONIC
	Dropped            int           // open loop: not sent, because every client was busy
	MeanLag, MaxLag    time.Duration // open loop: how much later than intended requests were sent
	OutOfTime          bool          // Duration ended the load before Requests
}

// Driver holds the connections to one service. It is kept from load to load, so that a measurement does not include
// connecting.
type Driver struct {
	endpoint  *url.URL // of deductions
	orders    *url.URL
	transport *http.Transport
}

// NewDriver prepares up to users connections to the service at base, an http URL. It does not connect yet.
func NewDriver(base string, users int) (*Driver, error) {
	endpoint, err := url.Parse(base)
	if err != nil {
		return nil, fmt.Errorf("target %q: %w", base, err)
	}
	if endpoint.Scheme != "http" && endpoint.Scheme != "https" || endpoint.Host == "" {
		return nil, fmt.Errorf("target %q: must be a URL such as http://127.0.0.1:8000", base)
	}
	orders := *endpoint
	orders.Path = strings.TrimSuffix(endpoint.Path, "/") + "/stock/orders"
	endpoint.Path = strings.TrimSuffix(endpoint.Path, "/") + "/stock/deduct"
	return &Driver{
		endpoint: endpoint,
		orders:   &orders,
		transport: &http.Transport{
			Proxy:                  nil, // never through a proxy
			DialContext:            (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
			DisableCompression:     true,
			MaxIdleConns:           users,
			MaxIdleConnsPerHost:    users,            // with fewer, connections would be closed and opened all the time
			IdleConnTimeout:        30 * time.Second, // shorter than nginx's, so that the server never closes first
			MaxResponseHeaderBytes: maxReply,
			WriteBufferSize:        1 << 10,
			ReadBufferSize:         2 << 10,
		},
	}, nil
}

// Close closes the connections.
func (d *Driver) Close() { d.transport.CloseIdleConnections() }

// exchange sends a request and reads the whole reply into body. It records the times and the status. If there is no
// whole reply, it records how the request failed, and ok is false. It never tries twice.
func (d *Driver) exchange(
	request *http.Request, op *history.Op, body *bytes.Buffer,
) (header http.Header, ok bool) {
	op.SentNS = monotonic.Now()
	// RoundTrip, not Client.Do: no redirects, no cookies, no copy of the headers.
	response, err := d.transport.RoundTrip(request)
	if err == nil {
		body.Reset()
		_, err = body.ReadFrom(io.LimitReader(response.Body, maxReply))
		response.Body.Close()
	}
	op.ReceivedNS = monotonic.Now()
	if err != nil {
		op.Outcome, op.Error = history.Unknown, describe(err)
		return nil, false
	}
	op.Status = response.StatusCode
	return response.Header, true
}

// TimedOut is the error of a request whose client gave up waiting: the service may still be working on it.
const TimedOut = "timeout"

// describe returns a short text for a transport error, because a history may hold thousands of them.
func describe(err error) string {
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
