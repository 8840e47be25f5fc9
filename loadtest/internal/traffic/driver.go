// Package traffic sends deductions to the service over HTTP and records what each client was told.
//
// In a closed loop, each of N users sends its next request when the last one was answered. In an open loop, requests
// are sent at a rate, whatever the service does. Their latency counts from the time at which they should have been
// sent, so that a stalled service cannot hide its stall (coordinated omission).
//
// The load shares its host with the service, so it must be cheap: each user has a connection of its own, requests are
// encoded without an allocation and replies are parsed with one, and whatever can wait, such as the names of requests,
// is added to the records after the load.
package traffic

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"stock/loadtest/internal/history"
	"stock/loadtest/internal/service"
)

// Load is what is sent to the service in one run.
type Load struct {
	Strategy string
	Store    string        // empty: the strategy's default
	Hold     time.Duration // work inside the critical section, in whole milliseconds
	Mix      *Mix

	Users    int           // concurrent clients; in an open loop, the most requests in flight
	Rate     float64       // requests per second of an open loop; 0: closed loop
	Requests int           // the number of requests; 0: until Duration
	Duration time.Duration // no request of the load starts later, but pending retries follow; 0: until Requests
	Timeout  time.Duration // of each request

	// Service is how a service of the user's is asked, and what its answers mean; nil: the service answers as stock does.
	// A load for it has only deductions, and Strategy, Store and Hold say nothing to it.
	Service *service.Description

	Keys    bool // send the name of each request as its Idempotency-Key
	Retries bool // send some requests again meanwhile; needs Keys, a closed loop and an even number of Users

	Cancels bool // cancel some of the sales, instead of Retries; it needs what they need, and deductions only

	Restock *Restock // what is put back meanwhile; may be nil
	// HoldFor makes every request a buyer who holds units, for this time, in whole milliseconds, or up to twice as long,
	// and then ends the reservation or leaves it; 0: the load deducts them. It needs a closed loop and an even number of
	// Users. Nothing is restocked then.
	HoldFor time.Duration

	RequestPrefix string        // requests are named PREFIX-0, PREFIX-1, …
	Answered      *atomic.Int64 // counts finished requests, to show progress; may be nil

	// Watch is called with each request of the load and its answer, in the goroutine of the client that sent it: it must
	// be fast, and may be called concurrently for different clients. The Op has no name. Nil: nobody watches.
	Watch func(*history.Op)
}

func (l Load) validate() error {
	switch {
	case l.Users < 1:
		return fmt.Errorf("users %d: must be at least 1", l.Users)
	case l.Requests < 1 && l.Duration <= 0:
		return errors.New("a load needs a number of requests or a duration")
	case l.Rate < 0:
		return fmt.Errorf("rate %g: must not be negative", l.Rate)
	case (l.Retries || l.Cancels) && (!l.Keys || l.Rate > 0 || l.Users%2 != 0):
		return errors.New("requests are sent again only with keys, in a closed loop, by pairs of users")
	case l.HoldFor > 0 && (l.Rate > 0 || l.Users%2 != 0 || l.Retries || l.Restock != nil):
		return errors.New("reservations are made only in a closed loop without restocks, by pairs of users")
	case l.Timeout <= 0:
		return errors.New("a load needs a timeout, because requests without one could keep it from ending")
	}
	return nil
}

// Result is what came of a Load.
type Result struct {
	Ops                []history.Op  // by the time of sending
	Sent               int           // requests, or buyers who hold; without what follows them, restocks and repeats
	StartedNS, EndedNS int64         // CLOCK_MONOTONIC
	Dropped            int           // open loop: not sent, because every client was busy
	MeanLag, MaxLag    time.Duration // open loop: how much later than intended requests were sent
	OutOfTime          bool          // Duration ended the load before Requests
	CPU                time.Duration // that this process used during the load, in user and system mode
}

// Driver holds the connections to one service. It is kept from load to load, so that a measurement does not include
// connecting. Its methods must not be called concurrently.
type Driver struct {
	servers     []server        // of which each user asks one after the other, if there are several
	connections [][]*connection // by user, one to each server; they stay open from load to load
}

// NewDriver prepares a connection for each user to the service at the bases, http or https URLs. It connects later.
func NewDriver(users int, bases ...string) (*Driver, error) {
	d := &Driver{}
	for _, base := range bases {
		s, err := newServer(base)
		if err != nil {
			return nil, err
		}
		d.servers = append(d.servers, s)
	}
	d.reserve(users)
	return d, nil
}

// reserve makes sure that there are connections for so many users.
func (d *Driver) reserve(users int) {
	for len(d.connections) < users {
		var own []*connection
		for _, s := range d.servers {
			own = append(own, newConnection(s))
		}
		d.connections = append(d.connections, own)
	}
}

// Close closes the connections.
func (d *Driver) Close() {
	for _, c := range slices.Concat(d.connections...) {
		c.close()
	}
}
