package stocktest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"stock/internal/servers/serverstest"
	"stock/internal/stock"
	"stock/internal/tcpproxy"
)

// crashUnits is the stock of an item before a sale of crashCount.
const crashUnits, crashCount = 10, 3

// RunCrashes kills a server while sales with keys are under way, each at another message to a server: it has not
// arrived, or was carried out and its reply has not arrived. crash kills the server and starts it again, with all that
// it had acknowledged. Then each request is sent again, to another replica: it must be sold once. strategies are
// names of the catalogue.
func RunCrashes(t *testing.T, a Addresses, on stock.Store, strategies []string, crash func()) {
	t.Helper()
	service := NewService(t, a.Connect(t))
	var all []*interrupted
	for _, name := range strategies {
		for _, reply := range []bool{false, true} {
			eachMessage(t, func(n int) bool {
				i := newInterrupted(t, a, service, name, on)
				i.when = fmt.Sprintf("%s, killed at message %d, which was carried out: %v", name, n, reply)
				i.sent = holdNth(t, i.proxies, n, i.req.Key, reply, func() (stock.Receipt, error) {
					return i.deducter.Deduct(patient(t), i.req)
				})
				if i.sent.held {
					all = append(all, i)
				}
				return i.sent.held
			})
		}
	}
	crash()
	for _, i := range all {
		i.first = i.sent.resume()
	}
	survivor := NewService(t, a.Connect(t))
	for _, i := range all {
		i.wantOneSale(t, survivor, on)
	}
	t.Logf("%d requests were under way", len(all))
}

// interrupted is a request with a key on a replica behind proxies.
type interrupted struct {
	when     string
	strategy string
	deducter stock.Deducter
	proxies  []*tcpproxy.Proxy
	req      stock.Request
	sent     heldRequest
	first    Answer
}

func newInterrupted(t *testing.T, a Addresses, service *Service, name string, on stock.Store) *interrupted {
	t.Helper()
	i := &interrupted{strategy: name}
	i.deducter, i.proxies = a.behindProxies(t, Strategy(t, name), on)
	id := service.NewItem(t, crashUnits)
	i.req = stock.Request{GoodsID: id, Count: crashCount, Key: fmt.Sprintf("%s on %s %d", name, on, id)}
	return i
}

// wantOneSale sends the request again until it is answered, as a client does.
func (i *interrupted) wantOneSale(t *testing.T, survivor *Service, on stock.Store) {
	t.Helper()
	d := survivor.Deducter(t, i.strategy, on)
	var again Answer
	serverstest.Eventually(t, i.when+": the request is answered", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		again.Receipt, again.Err = d.Deduct(ctx, i.req)
		return again.Err == nil || !errors.Is(again.Err, stock.ErrBusy) && !errors.Is(again.Err, stock.ErrUnavailable) &&
			!errors.Is(again.Err, stock.ErrInProgress)
	})
	if again.Err != nil || i.first.Err == nil && i.first.Receipt.Remaining != again.Receipt.Remaining {
		t.Errorf("%s: %v, and sent again: %v, want one sale", i.when, i.first, again)
	}
	survivor.WantLeft(t, on, i.req.GoodsID, crashUnits-crashCount)
	if last, err := d.Deduct(patient(t), i.req); err != nil || !last.Replayed {
		t.Errorf("%s, sent once more: %+v, %v, want a replay", i.when, last, err)
	}
}
