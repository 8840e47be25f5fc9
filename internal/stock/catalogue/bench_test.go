package catalogue_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"stock/internal/servers"
	"stock/internal/servers/serverstest"
	"stock/internal/stock"
	"stock/internal/stock/stocktest"
)

// BenchmarkDeduct measures deductions of one item by one replica, without HTTP. MySQL flushes each commit to the disk.
func BenchmarkDeduct(b *testing.B) {
	server := serverstest.StartMySQL(b, servers.MySQLOptions{})
	dsn, err := server.CreateDatabase(b.Context(), "stock")
	if err != nil {
		b.Fatal(err)
	}
	stocktest.Migrate(b, dsn)
	service := stocktest.NewService(b, stocktest.Addresses{MySQL: dsn}.Connect(b))
	for _, name := range []string{"noop", "update", "batch"} {
		d := service.Deducter(b, name, "")
		for _, callers := range []int{1, 8, 100} {
			b.Run(fmt.Sprintf("%s/callers=%d", name, callers), func(b *testing.B) {
				id := service.NewItem(b, 1<<40)
				b.ReportAllocs()
				b.ResetTimer()
				var wg sync.WaitGroup
				var asked atomic.Int64
				for range callers {
					wg.Go(func() {
						for asked.Add(1) <= int64(b.N) {
							if _, err := d.Deduct(b.Context(), stock.Request{GoodsID: id, Count: 1}); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
			})
		}
	}
}

// BenchmarkContention measures deductions of one item by two replicas. The time of an operation should hardly grow with
// the number of users.
func BenchmarkContention(b *testing.B) {
	a := stocktest.NewAddresses(b)
	for _, name := range []string{
		"update", "optimistic-version", "optimistic-timestamp-us", "serializable", "redis-watch", "redis-script",
	} {
		for _, users := range []int{1, 8, 64} {
			b.Run(fmt.Sprintf("%s/users=%d", name, users), func(b *testing.B) {
				replicas := [2]*stocktest.Service{
					stocktest.NewService(b, a.Connect(b)), stocktest.NewService(b, a.Connect(b)),
				}
				id := replicas[0].NewItem(b, int64(b.N))
				var wg sync.WaitGroup
				var asked, attempts atomic.Int64
				b.ResetTimer()
				for user := range users {
					d := replicas[user%2].Deducter(b, name, "")
					wg.Go(func() {
						for asked.Add(1) <= int64(b.N) {
							receipt, err := d.Deduct(b.Context(), stock.Request{GoodsID: id, Count: 1})
							if err != nil {
								b.Errorf("Deduct: %v", err)
							}
							attempts.Add(int64(receipt.Attempts))
						}
					})
				}
				wg.Wait()
				b.ReportMetric(float64(attempts.Load())/float64(b.N), "attempts/op")
			})
		}
	}
}
