package serverstest

import (
	"testing"

	"stock/internal/servers"
)

// StartSentinel starts a master, a Redis replica and one Sentinel for this test alone. One Sentinel is enough for most
// tests, and starts faster than three, which must find each other.
func StartSentinel(t testing.TB) *servers.RedisSentinel {
	t.Helper()
	Long(t)
	group, err := servers.StartRedisSentinel(t.Context(), servers.RedisSentinelOptions{Sentinels: 1})
	return started(t, group, err)
}

// StartCluster starts a Redis Cluster of three masters for this test alone.
func StartCluster(t testing.TB) *servers.RedisCluster {
	t.Helper()
	Long(t)
	cluster, err := servers.StartRedisCluster(t.Context(), servers.RedisClusterOptions{})
	return started(t, cluster, err)
}
