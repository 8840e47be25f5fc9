package servers_test

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"

	"stock/internal/must"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
	"stock/internal/tcpproxy"
)

func TestEtcdClusterElectsAnotherLeaderWhenItsLeaderIsCutOff(t *testing.T) {
	serverstest.Long(t)
	t.Parallel()
	var links []*tcpproxy.Proxy
	cluster := startEtcdCluster(t, func(addr string) (string, error) {
		links = append(links, tcpproxy.New(t, addr))
		return links[len(links)-1].Addr(), nil
	})
	first, status, err := cluster.Leader(t.Context())
	must.Succeed(t, err)
	for i, link := range links {
		if cluster.Members[i] == first {
			link.BlackHole()
			continue
		}
		link.Select(from(status.ID))
		t.Cleanup(link.Hold())
		link.Break()
	}
	anotherLeads(t, cluster, first)
	if err := first.Err(); err != nil {
		t.Errorf("the former leader has ended: %v", err)
	}
}

// from selects the messages of the connections that an etcd member makes to others.
func from(member uint64) func(tcpproxy.Message) bool {
	header := fmt.Appendf(nil, "X-Server-From: %x\r\n", member)
	var mu sync.Mutex
	conns := map[int]bool{}
	return func(m tcpproxy.Message) bool {
		mu.Lock()
		defer mu.Unlock()
		if bytes.Contains(m.Data, header) {
			conns[m.Conn] = true
		}
		return conns[m.Conn]
	}
}

func startEtcdCluster(t *testing.T, link func(string) (string, error)) *servers.EtcdCluster {
	t.Helper()
	cluster, err := servers.StartEtcdCluster(t.Context(), servers.EtcdClusterOptions{
		Member: servers.EtcdOptions{Relaxed: true}, Link: link,
	})
	must.Succeed(t, err)
	t.Cleanup(func() {
		must.Succeed(t, cluster.Stop(context.Background()))
		for _, member := range cluster.Members {
			gone(t, member.Process)
		}
	})
	return cluster
}

// anotherLeads waits until another member than the first leads the cluster.
func anotherLeads(t *testing.T, cluster *servers.EtcdCluster, first *servers.Etcd) (leader *servers.Etcd) {
	t.Helper()
	serverstest.Eventually(t, "another member leads", func() bool {
		var err error
		leader, _, err = cluster.Leader(t.Context())
		return err == nil && leader != first
	})
	return leader
}
