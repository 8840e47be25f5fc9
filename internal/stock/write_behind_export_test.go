package stock

import "time"

// HoldSales sets how long after its delivery a replica of redis-stream still writes a sale. It is to be called before the
// first one.
func HoldSales(d Deducter, limit time.Duration) { d.(redisStream).behind.hold = limit }
