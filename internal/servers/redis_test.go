package servers_test

import (
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"

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
			if err := client.Set(t.Context(), "stock:{1}", 6000, 0).Err(); err != nil {
				t.Fatal(err)
			}
			if err := server.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := client.Get(t.Context(), "stock:{1}").Err(); !errors.Is(err, test.want) {
				t.Errorf("after the restart, GET gives %v, want %v", err, test.want)
			}
		})
	}
}

func TestRedisStopFreesThePortAndTheDirectory(t *testing.T) {
	t.Parallel()
	server, err := servers.StartRedis(t.Context(), servers.RedisOptions{AOF: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	gone(t, server.Process, server.Addr)
}

func TestFailedStartOfRedisShowsItsLog(t *testing.T) {
	t.Parallel()
	_, err := servers.StartRedis(t.Context(), servers.RedisOptions{Args: []string{"--no-such-option", "1"}})
	contains(t, err, "ended before it was ready", "no-such-option")
}

func TestRedlockMastersAreIndependent(t *testing.T) {
	t.Parallel()
	masters := shared.Redlock(t, 3)
	if err := connect(t, masters[0]).Set(t.Context(), "key", "value", 0).Err(); err != nil {
		t.Fatal(err)
	}
	for _, other := range masters[1:] {
		if err := connect(t, other).Get(t.Context(), "key").Err(); !errors.Is(err, redis.Nil) {
			t.Errorf("reading a key of another master from %s gives %v, want redis.Nil", other.Addr, err)
		}
	}
}

func TestEachTestGetsItsOwnRedisDatabase(t *testing.T) {
	t.Parallel()
	if err := connect(t, shared.Redis(t)).Set(t.Context(), "key", "value", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := connect(t, shared.Redis(t)).Get(t.Context(), "key").Err(); !errors.Is(err, redis.Nil) {
		t.Errorf("reading a key of another database gives %v, want redis.Nil", err)
	}
}

func connect(t *testing.T, options *redis.Options) *redis.Client {
	t.Helper()
	client := redis.NewClient(options)
	t.Cleanup(func() { client.Close() })
	return client
}
