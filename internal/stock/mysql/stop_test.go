package mysql_test

import (
	"context"
	"errors"
	"regexp"
	"testing"
	"time"

	"stock/internal/stock"
	"stock/internal/stock/stocktest"
	"stock/internal/tcpproxy"
)

// whileStopped returns the context of a request of another replica, which must not wait for the one that is stopped.
func whileStopped(t *testing.T) context.Context { return stock.LimitWait(t.Context(), 0) }

// The batch asks for more than there is. Its replica is stopped after it has read the stock, before it takes what fits.
func TestABatchThatDoesNotFitBlocksNobodyWhileItsReplicaIsStopped(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		meanwhile func(t *testing.T, service *stocktest.Service, id int64) error
		answers   []string // to requests for 2 and 4 units of 3
		left      int64
	}{
		"enough is left for what fits": {sellMeanwhile(1), []string{"0 remain", "sold out at 0"}, 0},
		"too little is left":           {sellMeanwhile(2), []string{"sold out at 1", "sold out at 1"}, 1},
		"a restock makes enough for all": {func(t *testing.T, service *stocktest.Service, id int64) error {
			_, err := service.Restock(whileStopped(t), stock.MySQL, id, 5)
			return err
		}, []string{"6 remain", "2 remain"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newBatchReplica(t, "batch", 4)
			first, others, release := r.Gather(t, 2, 4)
			caught := r.Proxy.Catch(stocktest.Matching(deductFitting))
			release()
			stocktest.WantAnswers(t, stocktest.Answers(first), "3 remain")
			<-caught.Arrived()
			if err := test.meanwhile(t, r.Service, r.Item); err != nil {
				t.Errorf("while the replica is stopped: %v", err)
			}
			caught.Release()
			stocktest.WantAnswers(t, stocktest.Answers(others...), test.answers...)
			r.WantLeft(t, test.left)
		})
	}
}

func sellMeanwhile(count int) func(*testing.T, *stocktest.Service, int64) error {
	return func(t *testing.T, service *stocktest.Service, id int64) error {
		_, err := service.Deducter(t, "update", stock.MySQL).Deduct(whileStopped(t), stock.Request{GoodsID: id, Count: count})
		return err
	}
}

// A replica is stopped after the server has carried out a statement of its sale, or has ended its sale if that was the
// last one. If another replica cannot sell meanwhile, the strategy must claim that.
func TestWhatAnotherReplicaGetsWhileOneIsStopped(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		strategy string
		on       stock.Store
		sell     func(t *testing.T, d stock.Deducter, req stock.Request) error
		units    int64
		count    int
		after    string // the statement
		want     error
	}{
		"reserve, deduct": {"reserve", stock.MySQL, deductNow, 1000, 1, "UPDATE good_stock SET", nil},
		"reserve, hold":   {"reserve", stock.MySQL, holdNow, 1000, 1, "UPDATE good_stock SET", nil},
		"reserve, hold without waiting": {
			"reserve", stock.MySQL, holdWithoutWaiting, 1000, 1, "UPDATE good_stock SET", nil,
		},
		"units, rows are made":   {"units", stock.Units, deductNow, 5000, 1, "INSERT INTO good_unit", nil},
		"units, rows are locked": {"units", stock.Units, deductNow, 5000, 1, "FOR UPDATE SKIP LOCKED", nil},
		"units, too many for rows": {
			"units", stock.Units, deductNow, 5000, 1500, "FROM unit_stock .* FOR UPDATE", stock.ErrBusy,
		},
		"slots, more than a row has": {
			"slots", stock.Slots, deductNow, 1600, 150, "FROM good_slot .* FOR UPDATE", stock.ErrBusy,
		},
		"escrow, more than the row of the replica has": {
			"escrow", stock.Slots, deductNow, 1600, 150, "FROM good_slot .* FOR UPDATE", stock.ErrBusy,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := stocktest.NewAddresses(t, stock.NeedMySQL)
			service := stocktest.NewService(t, a.Connect(t))
			other := service.Deducter(t, test.strategy, test.on)
			proxy, dsn := stocktest.ProxyMySQL(t, a.MySQL)
			a.MySQL = dsn
			stopped := stocktest.NewService(t, a.Connect(t)).Deducter(t, test.strategy, test.on)
			id := service.NewItem(t, test.units)
			passed, caught := following(proxy, test.after)
			done := make(chan error, 1)
			go func() { done <- test.sell(t, stopped, stock.Request{GoodsID: id, Count: test.count}) }()
			<-passed
			select {
			case <-caught.Arrived():
			case err := <-done:
				done <- err
			}
			left := test.units - int64(test.count)
			_, err := other.Deduct(whileStopped(t), stock.Request{GoodsID: id, Count: 1})
			if !errors.Is(err, test.want) {
				t.Errorf("another sale meanwhile: %v, want %v", err, test.want)
			}
			if err == nil {
				left--
			}
			caught.Release()
			if err := <-done; err != nil {
				t.Errorf("the sale that was stopped: %v", err)
			}
			service.WantLeft(t, test.on, id, left)
		})
	}
}

func deductNow(t *testing.T, d stock.Deducter, req stock.Request) error {
	_, err := d.Deduct(t.Context(), req)
	return err
}

func holdNow(t *testing.T, d stock.Deducter, req stock.Request) error {
	_, _, err := d.(stock.Reserver).Hold(t.Context(), stock.HoldRequest{Request: req, TTL: time.Minute})
	return err
}

func holdWithoutWaiting(t *testing.T, d stock.Deducter, req stock.Request) error {
	_, _, err := d.(stock.Reserver).Hold(whileStopped(t), stock.HoldRequest{Request: req, TTL: time.Minute})
	return err
}

// following catches the message that follows one that matches, on the same connection. passed is closed when the first
// of the two arrives.
func following(proxy *tcpproxy.Proxy, pattern string) (passed <-chan struct{}, caught *tcpproxy.Caught) {
	statement, conn, first := regexp.MustCompile("(?s)"+pattern), 0, make(chan struct{})
	return first, proxy.Catch(func(m tcpproxy.Message) bool {
		if conn == 0 && statement.Match(m.Data) {
			conn = m.Conn
			close(first)
			return false
		}
		return m.Conn == conn
	})
}
