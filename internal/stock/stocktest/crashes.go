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
			for n := 1; ; n++ {
				i := newInterrupted(t, a, service, name, on)
				if !i.stop(t, n, reply) {
					if n == 1 {
						t.Errorf("%s sends no message with the key", name)
					}
					break
				}
				i.when = fmt.Sprintf("%s, killed at message %d, which was carried out: %v", name, n, reply)
				all = append(all, i)
			}
		}
	}
	crash()
	for _, i := range all {
		i.release()
		i.first = <-i.done
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
	caught   []*tcpproxy.Caught
	done     chan Answer
	first    Answer
}

func newInterrupted(t *testing.T, a Addresses, service *Service, name string, on stock.Store) *interrupted {
	t.Helper()
	i := &interrupted{strategy: name, done: make(chan Answer, 1)}
	i.deducter, i.proxies = a.behindProxies(t, Strategy(t, name), on)
	id := service.NewItem(t, crashUnits)
	i.req = stock.Request{GoodsID: id, Count: crashCount, Key: fmt.Sprintf("%s on %s %d", name, on, id)}
	return i
}

// stop sends the request, and waits until its n-th message with the key, or COMMIT, is held, or the reply to that. It
// reports false if the request ended without such a message.
func (i *interrupted) stop(t *testing.T, n int, reply bool) bool {
	t.Helper()
	match := nth(n, i.req.Key)
	for _, proxy := range i.proxies {
		catch := proxy.Catch
		if reply {
			catch = proxy.CatchReply
		}
		i.caught = append(i.caught, catch(match))
	}
	go func() {
		receipt, err := i.deducter.Deduct(patient(t), i.req)
		i.done <- Answer{receipt, err}
	}()
	held := false
	serverstest.Eventually(t, "the message is held, or the request has ended", func() bool {
		for _, c := range i.caught {
			select {
			case <-c.Arrived():
				held = true
			default:
			}
		}
		return held || len(i.done) > 0
	})
	if !held {
		i.release()
	}
	return held
}

func (i *interrupted) release() {
	for _, c := range i.caught {
		c.Release()
	}
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
