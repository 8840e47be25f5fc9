package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	"stock/internal/stock"
	"stock/internal/suggest"
)

// terms are the members that deductions and orders have in common. All are optional.
type terms struct {
	Strategy string      `json:"strategy"`
	Store    stock.Store `json:"store"`
	HoldMS   int64       `json:"hold_ms"`
	WaitMS   *int64      `json:"wait_ms"` // nil if not given: 0 is a limit
}

// call is a request that is being answered.
type call struct {
	api     *API
	w       http.ResponseWriter
	r       *http.Request
	started time.Time
	offer   *offer // the strategy; nil until choose has set it

	// Set by accept.
	hold time.Duration
	wait *time.Duration // nil for the usual limit
	key  string
}

// receipt is the part of the reply that is the same for deductions and orders.
type receipt struct {
	Strategy  string      `json:"strategy"`
	Store     stock.Store `json:"store"`
	Replica   string      `json:"replica"`
	RequestID string      `json:"request_id"`
	Attempts  int         `json:"attempts"`
	Token     *uint64     `json:"token,omitempty"` // nil for orders, which have one token per line
	WaitedUS  int64       `json:"waited_us"`
	HeldUS    int64       `json:"held_us"`
	EnteredNS int64       `json:"entered_ns"`
	LeftNS    int64       `json:"left_ns"`
}

// handle makes a handler of a function that carries out a request and returns the reply.
func (a *API) handle(status int, carryOut func(*call) (reply any, err error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c := &call{api: a, w: w, r: r, started: time.Now()}
		a.nameStrategy(w, c.inPath()) // also if the request turns out to be malformed
		reply, err := carryOut(c)
		if err != nil {
			a.fail(w, r, err)
			return
		}
		writeJSON(w, status, typeJSON, reply)
	}
}

// inPath is the strategy that the path names, or empty.
func (c *call) inPath() string { return chi.URLParam(c.r, "strategy") }

// choose takes the strategy from the path, from the request or from the configuration.
func (c *call) choose(requested string) error {
	name, inPath := c.api.DefaultStrategy, c.inPath()
	switch {
	case inPath != "" && requested != "" && inPath != requested:
		return describe(errMalformed, "the path asks for strategy %q and the request for %q", inPath, requested)
	case inPath != "":
		name = inPath
	case requested != "":
		name = requested
	}
	if c.offer = c.api.offers[name]; c.offer == nil {
		return describe(stock.ErrUnknownStrategy, "there is no strategy %q%s", name, suggest.DidYouMean(name, c.api.names))
	}
	c.api.nameStrategy(c.w, name)
	return nil
}

// accept chooses the strategy, and reads hold_ms, wait_ms and the header Idempotency-Key. It refuses what the
// strategy would ignore, because the client relies on it.
func (c *call) accept(t terms) (err error) {
	if err := c.choose(t.Strategy); err != nil {
		return err
	}
	if c.hold, err = c.api.hold(t.HoldMS); err != nil {
		return err
	}
	if c.wait, err = c.api.waitLimit(t.WaitMS); err != nil {
		return err
	}
	c.key, err = idempotencyKey(c.r)
	return err
}

// isPrintable reports whether a text has at least one character and at most so many, all of them ASCII, from the given
// one up: a blank, or the first that is visible.
func isPrintable(text string, from byte, most int) bool {
	for i := range len(text) {
		if text[i] < from || text[i] > '~' {
			return false
		}
	}
	return text != "" && len(text) <= most
}

// hold checks hold_ms against --max-hold.
func (a *API) hold(ms int64) (time.Duration, error) {
	hold := time.Duration(min(ms, stock.MaxHold.Milliseconds()+1)) * time.Millisecond
	switch {
	case ms < 0:
		return 0, describe(errMalformed, "hold_ms is %d: it must not be negative", ms)
	case hold > 0 && a.MaxHold == 0:
		return 0, describe(errMalformed, "hold_ms is %d: this replica accepts none, see --max-hold", ms)
	case hold > a.MaxHold:
		return 0, describe(errMalformed, "hold_ms is %d: this replica accepts at most %d, see --max-hold",
			ms, a.MaxHold.Milliseconds())
	}
	return hold, nil
}

// waitLimit checks wait_ms against --lock-wait. A longer wait is refused, not shortened: the client would believe that
// the request may wait that long.
func (a *API) waitLimit(ms *int64) (*time.Duration, error) {
	if ms == nil {
		return nil, nil
	}
	if longest := a.Deps.LockWait.Milliseconds(); *ms < 0 || *ms > longest {
		return nil, describe(errMalformed, "wait_ms is %d: it must be 0 to %d on this replica, see --lock-wait; "+
			"0 tries once, and without wait_ms the request waits as long as the replica allows", *ms, longest)
	}
	limit := time.Duration(*ms) * time.Millisecond
	return &limit, nil
}

// limited limits the time for the request, and the waits in it.
func (c *call) limited() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(c.r.Context(), c.api.RequestTimeout)
	if c.wait != nil {
		ctx = stock.LimitWait(ctx, *c.wait)
	}
	return ctx, cancel
}

// carryOut runs a deduction or an order and counts it.
func (c *call) carryOut(on stock.Store, do func(context.Context) (stock.Receipt, error)) error {
	ctx, cancel := c.limited()
	defer cancel()
	done, err := do(ctx)
	c.offer.series[on]().observe(done, err, time.Since(c.started), c.r.Context().Err() != nil)
	c.tellReplay(done.Replayed)
	return err
}

func (c *call) tellReplay(replayed bool) {
	if replayed {
		c.w.Header()["Idempotency-Replayed"] = isTrue
	}
}

func (c *call) receipt(on stock.Store, done stock.Receipt) receipt {
	return receipt{
		Strategy:  c.offer.Name,
		Store:     on,
		Replica:   c.api.Replica,
		RequestID: requestID(c.w),
		Attempts:  done.Attempts,
		WaitedUS:  done.Waited.Microseconds(),
		HeldUS:    done.Held.Microseconds(),
		EnteredNS: done.Entered,
		LeftNS:    done.Left,
	}
}

// describe adds to an error what the client may know about it.
func (c *call) describe(err error, goodsID int64, on stock.Store) error {
	switch k := kindOf(err); {
	case k.is(stock.ErrUnknownItem):
		return describe(err, "item %d does not exist in store %s", goodsID, on)
	case k.is(stock.ErrUnsupportedStore) && c.offer == nil:
		return describe(err, "there is no store %q, only %s", on, list(stock.Stores))
	case k.is(stock.ErrUnsupportedStore):
		return describe(err, "strategy %s works on %s, not on %q; name a strategy of that store, as GET /strategies lists",
			c.offer.Name, list(c.offer.Stores), on)
	case k.is(stock.ErrUnavailable) && c.offer != nil && c.offer.Unavailable[on] != "":
		return describe(err, "strategy %s is unavailable on store %s: %s", c.offer.Name, on, c.offer.Unavailable[on])
	}
	return err
}
