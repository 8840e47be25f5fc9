package servers_test

import (
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"stock/internal/must"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
)

func TestEtcdKeepsAcknowledgedWritesWhenKilled(t *testing.T) {
	t.Parallel()
	server := serverstest.StartEtcd(t, servers.EtcdOptions{})
	client := connectEtcd(t, server.Addr)
	_, err := client.Put(t.Context(), "stock/1", "6000")
	must.Succeed(t, err)
	pid := server.PID
	must.Succeed(t, server.Restart(t.Context()))
	if server.PID == pid {
		t.Error("the restarted server is the same process")
	}
	got, err := client.Get(t.Context(), "stock/1")
	if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "6000" {
		t.Errorf("after the restart, the key has %v, %v, want 6000", got, err)
	}
}

func TestEtcdStopFreesThePortAndTheDirectory(t *testing.T) {
	t.Parallel()
	server, err := servers.StartEtcd(t.Context(), servers.EtcdOptions{Relaxed: true})
	must.Succeed(t, err)
	if !strings.HasPrefix(server.Version, "etcd 3.") {
		t.Errorf("the version is %q, want etcd 3.x", server.Version)
	}
	must.Succeed(t, server.Stop(t.Context()))
	gone(t, server.Process)
}

func TestFailedStartOfEtcdShowsItsLog(t *testing.T) {
	t.Parallel()
	_, err := servers.StartEtcd(t.Context(), servers.EtcdOptions{Args: []string{"--no-such-option"}})
	contains(t, err, "ended before it was ready", "no-such-option")
}

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
