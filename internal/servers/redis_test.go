package servers_test

import (
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"

	"stock/internal/must"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
)

func TestRedisKeepsAcknowledgedWritesOnlyWithAnAppendOnlyFile(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		options servers.RedisOptions
		want    error
	}{
		"with":    {servers.RedisOptions{AOF: true, Fsync: "always"}, nil},
		"without": {servers.RedisOptions{}, redis.Nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := serverstest.StartRedis(t, test.options)
			client := connect(t, &redis.Options{Addr: server.Addr})
			must.Succeed(t, client.Set(t.Context(), "stock:{1}", 6000, 0).Err())
			must.Succeed(t, server.Restart(t.Context()))
			if err := client.Get(t.Context(), "stock:{1}").Err(); !errors.Is(err, test.want) {
				t.Errorf("after the restart, GET gives %v, want %v", err, test.want)
			}
		})
	}
}

func connect(t *testing.T, options *redis.Options) *redis.Client {
	t.Helper()
	client := redis.NewClient(options)
	t.Cleanup(func() { client.Close() })
	return client
}
