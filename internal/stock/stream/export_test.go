package stream

import (
	"time"

	"stock/internal/stock"
)

// SetMaxEntryAge sets how long after its delivery a replica still writes a sale. It must be called before the first
// sale.
func SetMaxEntryAge(d stock.Deducter, limit time.Duration) { d.(redisStream).behind.maxAge = limit }

// Remembered returns how many items a replica has noted as open, pending, failed, waiting or to be taken over.
func Remembered(d stock.Deducter) int {
	s := &d.(redisStream).behind.items
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open) + len(s.pending) + len(s.failed) + len(s.waiting) + len(s.takeOver)
}
