package stocktest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"stock/internal/stock"
	"stock/internal/tcpproxy"
)

// disturbed is a request, a sale or its cancellation, of which one message is late or lost.
type disturbed struct {
	subject
	units   int64 // enough for the sale, or too few
	cancels bool  // the request is the cancellation
	after   bool  // the cancellation comes after the sale
	where   tcpproxy.CutPoint
	late    bool // the message is late, instead of lost
}

// survivesDisturbances sends sales and cancellations. The first message that has the key, or is a COMMIT, is late, or
// the connection is cut before it or before its reply; then the second one, and so on. The client sends its request
// again, to a replica whose connections are sound. Leases are short, because a lock outlives a request whose outcome is
// unknown.
func (s subject) survivesDisturbances(t *testing.T) {
	victim, proxies := s.behindProxies(t, 300*time.Millisecond)
	for _, d := range []disturbed{
		{units: 10}, {units: 2}, {units: 10, cancels: true}, {units: 10, cancels: true, after: true},
	} {
		d.subject = s
		for _, d.where = range []tcpproxy.CutPoint{tcpproxy.BeforeRequest, tcpproxy.BeforeReply} {
			d.strikeEach(t, victim, proxies)
		}
		if !d.after { // a canceller of a sale may hold a lock, and stops everybody else
			d.late = true
			d.strikeEach(t, victim, proxies)
		}
	}
}

// strikeEach disturbs each message of the request. On a slow machine, the lease may end before the request has sent the
// message that is to be disturbed. The request is then refused, and another one is sent.
func (d disturbed) strikeEach(t *testing.T, victim stock.Deducter, proxies []*tcpproxy.Proxy) {
	t.Helper()
	eachMessage(t, func(n int) bool {
		for range 50 {
			struck, err := d.strike(t, victim, proxies, n)
			if struck || !errors.Is(err, stock.ErrBusy) && !errors.Is(err, stock.ErrUnavailable) {
				return struck
			}
		}
		t.Errorf("%v: every request is refused before message %d", d, n)
		return false
	})
}

// String describes the request.
func (d disturbed) String() string {
	what := "a sale"
	if d.cancels {
		what = "a cancellation before the sale"
		if d.after {
			what = "a cancellation after the sale"
		}
	}
	how := "whose connection is cut " + string(d.where)
	if d.late {
		how = "of which a message is late"
	}
	return fmt.Sprintf("%s, with %d units in stock, %s", what, d.units, how)
}

// strike disturbs the n-th message, and reports whether there was one, and otherwise how the request ended. In the end
// the sale is cancelled.
func (d disturbed) strike(
	t *testing.T, victim stock.Deducter, proxies []*tcpproxy.Proxy, n int,
) (struck bool, ended error) {
	id := d.newItem(t, d.units)
	req := stock.Request{GoodsID: id, Count: 3, Key: d.key(id)}
	if d.after {
		_, _ = d.deductOn(t, 1, req)
	}
	send := func() (receipt stock.Receipt, err error) {
		if !d.cancels {
			return victim.Deduct(patient(t), req)
		}
		_, err = cancelBy(patient(t), victim, req.Key)
		return receipt, err
	}
	if d.late {
		sent := holdNth(t, proxies, n, req.Key, send)
		if struck = sent.held; struck {
			d.meanwhile(t, n, req, sent)
		} else {
			ended = (<-sent.done).Err
		}
	} else {
		struck = cutNth(proxies, n, req.Key, d.where, func() { _, ended = send() })
		if !d.cancels {
			d.wantOneSale(t, fmt.Sprintf("%v, message %d", d, n), req, ended)
		}
	}
	sale, err := d.retryCancel(patient(t), 1, req.Key)
	if err != nil || !sale.CannotSell() {
		t.Errorf("%v, cancelled after message %d: %+v, %v, want cancelled", d, n, sale, err)
	}
	d.wantLeft(t, id, d.units)
	d.wantCancelled(t, req)
	d.wantLeft(t, id, d.units)
	return struck, ended
}

// meanwhile cancels a sale while a message of it is late, or sells, and cancels a part, while one of the cancellation
// is.
func (d disturbed) meanwhile(t *testing.T, n int, req stock.Request, sent heldRequest) {
	if !d.cancels {
		early, err := cancelBy(stock.LimitWait(patient(t), 0), d.replicas[1].deducter, req.Key)
		if err != nil && !errors.Is(err, stock.ErrInProgress) && !errors.Is(err, stock.ErrBusy) {
			t.Errorf("%v, cancel before message %d: %v, want cancelled, in progress or busy", d, n, err)
		}
		if ended := sent.resume(); err == nil && early.State == stock.SaleNeverSold && ended.Err == nil {
			t.Errorf("%v, message %d: confirmed after a cancellation of nothing: %+v", d, n, ended.Receipt)
		}
		return
	}
	_, sold := d.deductOn(t, 1, req)
	if sold == nil {
		if _, err := cancelBy(patient(t), d.replicas[1].deducter, req.Key, 1); err != nil {
			t.Errorf("%v, cancel a part before message %d: %v", d, n, err)
		}
	}
	if ended := sent.resume(); ended.Err != nil || sold != nil && !errors.Is(sold, stock.ErrCancelled) {
		t.Errorf("%v, message %d: the cancellation ended with %v, and the sale meanwhile with %v", d, n, ended.Err, sold)
	}
}

// wantOneSale sends a request again and checks that the answers are those of one sale, or of one refusal.
func (d disturbed) wantOneSale(t *testing.T, when string, req stock.Request, first error) {
	t.Helper()
	receipt, err := d.retryRefusals(patient(t), 1, req)
	left := d.units
	switch {
	case d.units < int64(req.Count):
		if !errors.Is(err, stock.ErrSoldOut) {
			t.Errorf("%s, sent again: %v, want sold out", when, err)
		}
	case err != nil || !d.leaves(receipt, d.units-int64(req.Count)):
		t.Errorf("%s, sent again: %+v, %v, want a receipt", when, receipt, err)
	default:
		left -= int64(req.Count)
	}
	if first == nil && err == nil && !receipt.Replayed {
		t.Errorf("%s: the request was confirmed twice without a replay", when)
	}
	d.wantLeft(t, req.GoodsID, left)
}
