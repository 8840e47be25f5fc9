package servers_test

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/internal/must"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
)

func TestTheClockOfARedisJumps(t *testing.T) {
	t.Parallel()
	server, err := servers.StartRedis(t.Context(), servers.RedisOptions{Clock: true})
	if errors.Is(err, servers.ErrNotInstalled) {
		t.Skip(err)
	}
	must.Succeed(t, err)
	serverstest.StopAfterTest(t, server)
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	t.Cleanup(func() { client.Close() })
	must.Succeed(t, client.Set(t.Context(), "lock", "A", time.Hour).Err())
	// SetClock checks what TIME says.
	must.Succeed(t, server.SetClock(t.Context(), 2*time.Hour))
	if n, err := client.Exists(t.Context(), "lock").Result(); n != 0 || err != nil {
		t.Errorf("%d keys are left after their time to live, %v", n, err)
	}
	must.Succeed(t, server.SetClock(t.Context(), 0))
}
