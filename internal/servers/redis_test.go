package servers_test

import (
	"errors"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

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

func TestRedisLoadsTheLibraryThatItsEnvironmentNames(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux knows LD_PRELOAD")
	}
	t.Parallel()
	const missing = "/no/such/library.so"
	server := serverstest.StartRedis(t, servers.RedisOptions{Env: []string{"LD_PRELOAD=" + missing}})
	if log := server.Tail(100); !strings.Contains(log, missing) {
		t.Errorf("the log does not complain that %s is missing:\n%s", missing, log)
	}
}

func TestStopDoesNotWaitForARedisReplicaThatLagsBehind(t *testing.T) {
	t.Parallel()
	master, err := servers.StartRedis(t.Context(), servers.RedisOptions{})
	must.Succeed(t, err)
	replica := serverstest.StartRedis(t, servers.RedisOptions{ReplicaOf: master.Addr})
	must.Succeed(t, replica.Signal(syscall.SIGSTOP))
	must.Succeed(t, connect(t, &redis.Options{Addr: master.Addr}).Set(t.Context(), "key", "value", 0).Err())
	began := time.Now()
	must.Succeed(t, master.Stop(t.Context()))
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("Stop took %v: on SIGTERM, Redis waits up to 10 s for its Redis replicas", took)
	}
	gone(t, master.Process)
}

func TestRedisStopFreesThePortAndTheDirectory(t *testing.T) {
	t.Parallel()
	server, err := servers.StartRedis(t.Context(), servers.RedisOptions{AOF: true})
	must.Succeed(t, err)
	must.Succeed(t, server.Stop(t.Context()))
	gone(t, server.Process)
}

func connect(t *testing.T, options *redis.Options) *redis.Client {
	t.Helper()
	client := redis.NewClient(options)
	t.Cleanup(func() { client.Close() })
	return client
}
