package stream

import (
	"time"

	"stock/internal/stock"
)

// SetMaxEntryAge sets how long after its delivery a replica still writes a sale. It must be called before the first
// sale.
func SetMaxEntryAge(d stock.Deducter, limit time.Duration) { d.(redisStream).behind.maxAge = limit }
