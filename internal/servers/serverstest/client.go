package serverstest

import (
	"net"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"stock/internal/must"
	"stock/internal/servers"
)

// FreeAddress returns a host:port on loopback where nothing listens.
func FreeAddress(t testing.TB) string {
	t.Helper()
	port, err := servers.FreePort()
	must.Succeed(t, err)
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// RedisClient returns a client that sends every command once, as those of the service do, and does not wait for an
// answer longer than the command's context. It is closed when the test ends.
func RedisClient(t testing.TB, options *redis.Options) redis.UniversalClient {
	o := *options
	o.ContextTimeoutEnabled = true
	o.MaxRetries = -1
	o.DialerRetries = 1
	// Otherwise go-redis has a data race between Conns of one client whose server refuses these notifications.
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	client := redis.NewClient(&o)
	t.Cleanup(func() { client.Close() })
	return client
}
