package stream

import (
	"time"

	"stock/internal/stock"
)

// HoldSales sets how long after its delivery a replica still writes a sale. It must be called before the first sale.
func HoldSales(d stock.Deducter, limit time.Duration) { d.(redisStream).behind.hold = limit }
