package mysql_test

import (
	"context"
	"errors"
	"testing"

	"github.com/go-sql-driver/mysql"

	"stock/internal/must"
	"stock/internal/stock"
	"stock/internal/stock/stocktest"
)

// Two transactions that lock two items in opposite order wait for each other. So would orders that locked their items
// in the given order.
func TestUnorderedTransactionsDeadlock(t *testing.T) {
	t.Parallel()
	const takeOne = "UPDATE good_stock SET stock = stock - 1 WHERE goods_id = ?"
	o := stocktest.NewOrders(t, stocktest.NewAddresses(t, stock.NeedMySQL), 10, 10)
	first, second := stocktest.Begin(t, o.Deps.MySQL), stocktest.Begin(t, o.Deps.MySQL)
	_, err := first.Exec(takeOne, o.Items[0])
	_, err2 := second.Exec(takeOne, o.Items[1])
	must.Succeed(t, errors.Join(err, err2))
	done := make(chan error, 1)
	go func() {
		_, err := first.Exec(takeOne, o.Items[1])
		done <- err
	}()
	_, err = second.Exec(takeOne, o.Items[0])
	if err == nil {
		err = <-done // the server rolled back the first one
	}
	if server, ok := errors.AsType[*mysql.MySQLError](err); !ok || server.Number != 1213 {
		t.Errorf("got %v, want a deadlock, error 1213", err)
	}
}

// The second order waits for the item that the first one has locked, and has locked nothing itself.
func TestOppositeOrdersDoNotDeadlock(t *testing.T) {
	t.Parallel()
	a := stocktest.NewAddresses(t, stock.NeedMySQL)
	for name, locked := range map[string]stocktest.Point{
		"update": stocktest.AfterWrite, "for-update": stocktest.AfterRead,
	} {
		o := stocktest.NewOrders(t, a, 10, 10)
		stopped, goOn := make(chan struct{}), make(chan struct{})
		stopAfterFirstItem := stocktest.Once(locked, func(context.Context) {
			close(stopped)
			<-goOn
		})
		first, second := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := o.Place(name, stock.MySQL, stopAfterFirstItem, 1, 2)
			first <- err
		}()
		<-stopped
		go func() {
			_, err := o.Place(name, stock.MySQL, nil, 3, 4)
			second <- err
		}()
		stocktest.WaitForRowLock(t, o.Deps.MySQL)
		probe := stocktest.Begin(t, o.Deps.MySQL)
		_, err := probe.Exec("SELECT stock FROM good_stock WHERE goods_id = ? FOR UPDATE NOWAIT", o.Items[1])
		if err != nil {
			t.Errorf("%s: an order that waits for its first item has locked its last: %v", name, err)
		}
		must.Succeed(t, probe.Rollback())
		close(goOn)
		if err := errors.Join(<-first, <-second); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		o.WantLeft(stock.MySQL, 6, 4)
	}
}
