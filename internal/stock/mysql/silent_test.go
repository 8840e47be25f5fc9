package mysql_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"stock/internal/servers/serverstest"
	"stock/internal/stock"
	"stock/internal/stock/stocktest"
)

// Statements run without a context that ends only if the connection notices a silent server early enough.
func TestASilentServerIsNoticedWithinTheTimeOfARequest(t *testing.T) {
	serverstest.Long(t)
	t.Parallel()
	for _, test := range []struct {
		name, readTimeout string
		reply             time.Duration
		strategies        []string
	}{
		{"by the connection", "1s", time.Second, []string{"mutex", "for-update", "optimistic-version", "update"}},
		{"by the request", "1m", time.Minute, []string{"mutex", "for-update", "optimistic-version"}},
	} {
		for _, name := range test.strategies {
			t.Run(test.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				a := stocktest.NewAddresses(t, stock.NeedMySQL)
				proxy, dsn := stocktest.ProxyMySQL(t, a.MySQL)
				a.MySQL = dsn
				a = a.WithMySQLParam(t, "readTimeout", test.readTimeout)
				deps := a.Connect(t)
				deps.MySQLReply, deps.LockWait = test.reply, time.Second
				service := stocktest.NewService(t, deps)
				d, id := service.Deducter(t, name, stock.MySQL), service.NewItem(t, 10)
				stocktest.Sell(t, d, stock.Request{GoodsID: id, Count: 1})

				proxy.BlackHole()
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				began := time.Now()
				_, err := d.Deduct(ctx, stock.Request{GoodsID: id, Count: 1})
				unknown := errors.Is(err, stock.ErrUnknown)
				// If nobody noticed, it would take a minute, or never end.
				if took := time.Since(began); err == nil || took > 30*time.Second || unknown != (name == "update") {
					t.Errorf("after %v: %v, want an error after the request's 3 s, unknown if it was the only message", took, err)
				}
				proxy.Break()
			})
		}
	}
}
