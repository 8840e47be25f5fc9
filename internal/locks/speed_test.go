package locks_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"stock/internal/locks"
)

// BenchmarkUncontended is the time and the memory of a lock that nobody else wants, and of its release.
func BenchmarkUncontended(b *testing.B) {
	for name, newLock := range map[string]newRung{
		"redis-lua":    rung(locks.NewRedisLua),
		"redis-pubsub": rung(locks.NewRedisPubSub),
		"redis-rlock":  rung(locks.NewRedisRLock),
		"redis-queue":  rung(locks.NewRedisQueue),
	} {
		b.Run(name, func(b *testing.B) {
			client := redis.NewClient(shared.Redis(b))
			defer client.Close()
			lock := newLock(client, locks.Options{})
			defer func() { _ = locks.Close(lock) }()
			b.ReportAllocs()
			for b.Loop() {
				lease, err := lock.Lock(b.Context(), rungKey)
				if err != nil {
					b.Fatal(err)
				}
				if err := lease.Unlock(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
