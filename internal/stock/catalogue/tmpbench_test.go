package catalogue_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"stock/internal/servers"
	"stock/internal/servers/serverstest"
	"stock/internal/stock"
	"stock/internal/stock/stocktest"
)

func TestTmpSpeed(t *testing.T) {
	server := serverstest.StartMySQL(t, servers.MySQLOptions{})
	dsn, err := server.CreateDatabase(t.Context(), "stock")
	if err != nil {
		t.Fatal(err)
	}
	stocktest.Migrate(t, dsn)
	a := stocktest.Addresses{MySQL: dsn}
	if os.Getenv("TMPREDIS") != "" {
		a.Redis = stocktest.Servers.Redis(t)
	}
	service := stocktest.NewService(t, a.Connect(t))
	for _, name := range strings.Split(os.Getenv("TMPNAMES"), ",") {
		name, on, _ := strings.Cut(name, "/")
		d := service.Deducter(t, name, stock.Store(on))
		id := service.NewItem(t, 1<<40)
		var n [2]int64
		var dur [2]time.Duration
		for round := range 20 {
			keyed := round % 2
			began := time.Now()
			var done atomic.Int64
			var wg sync.WaitGroup
			for c := range 64 {
				wg.Go(func() {
					for i := 0; time.Since(began) < 400*time.Millisecond; i++ {
						req := stock.Request{GoodsID: id, Count: 1}
						if keyed == 1 {
							req.Key = fmt.Sprintf("%x-%d-%d-%d", time.Now().UnixNano(), round, c, i)
						}
						if _, err := d.Deduct(context.Background(), req); err != nil {
							t.Error(err)
							return
						}
						done.Add(1)
					}
				})
			}
			wg.Wait()
			n[keyed] += done.Load()
			dur[keyed] += time.Since(began)
		}
		r0, r1 := float64(n[0])/dur[0].Seconds(), float64(n[1])/dur[1].Seconds()
		t.Logf("%-22s %8.0f/s  with key %8.0f/s  x %.2f", name, r0, r1, r1/r0)
	}
}
