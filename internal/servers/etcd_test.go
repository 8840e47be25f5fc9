package servers_test

import (
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"stock/internal/must"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
)

// It is not parallel because it changes the environment.
func TestEtcdIgnoresTheEnvironment(t *testing.T) {
	t.Setenv("ETCD_LISTEN_CLIENT_URLS", "nonsense")
	t.Setenv("ETCD_FORCE_NEW_CLUSTER", "nonsense")
	serverstest.StartEtcd(t, servers.EtcdOptions{})
}

func connectEtcd(t *testing.T, addr string) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{addr}, DialTimeout: 20 * time.Second, Context: t.Context(),
	})
	must.Succeed(t, err)
	t.Cleanup(func() { client.Close() })
	return client
}
