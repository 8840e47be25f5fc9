package catalogue_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"stock/internal/servers"
	"stock/internal/servers/serverstest"
	"stock/internal/stock"
	"stock/internal/stock/stocktest"
)

// BenchmarkDeduct is one replica's time a deduction of one goods, without HTTP, where a commit is on the disk before
// it is answered.
func BenchmarkDeduct(b *testing.B) {
	server := serverstest.StartMySQL(b, servers.MySQLOptions{})
	dsn, err := server.CreateDatabase(b.Context(), "stock")
	if err != nil {
		b.Fatal(err)
	}
	stocktest.Migrate(b, dsn)
	deps := stock.Deps{MySQL: stocktest.MySQL(b, dsn), LockWait: 20 * time.Second}
	deps.MySQLLocks = deps.MySQL
	service := stocktest.NewService(b, deps)
	for _, name := range []string{"noop", "update", "batch"} {
		d, _, err := service.Resolve(name, "")
		if err != nil {
			b.Fatal(err)
		}
		for _, callers := range []int{1, 8, 100} {
			b.Run(fmt.Sprintf("%s/callers=%d", name, callers), func(b *testing.B) {
				id := stocktest.NewItem()
				if err := service.SetStock(b.Context(), id, 1<<40); err != nil {
					b.Fatal(err)
				}
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
