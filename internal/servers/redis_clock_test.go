package servers_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/internal/servers"
)

func TestTheClockOfARedisJumps(t *testing.T) {
	t.Parallel()
	server, err := servers.StartRedis(t.Context(), servers.RedisOptions{Clock: true})
	if errors.Is(err, servers.ErrNotInstalled) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	t.Cleanup(func() { client.Close() })
	if err := client.Set(t.Context(), "lock", "A", time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	// SetClock checks what TIME says.
	if err := server.SetClock(t.Context(), 2*time.Hour); err != nil {
		t.Fatal(err)
	}
	if n, err := client.Exists(t.Context(), "lock").Result(); n != 0 || err != nil {
		t.Errorf("%d keys are left after their time to live, %v", n, err)
	}
	if err := server.SetClock(t.Context(), 0); err != nil {
		t.Error(err)
	}
}
