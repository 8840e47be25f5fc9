package main

import (
	"strings"
	"testing"

	"stock/loadtest/internal/topology"
)

func TestTheBannerTellsWhereEtcdAndZooKeeperAreOrHowToGetThem(t *testing.T) {
	t.Parallel()
	var got strings.Builder
	if err := banner(&got, &topology.Topology{
		MySQLDSN: "root@tcp(127.0.0.1:3306)/stock",
		Redis:    []string{"127.0.0.1:6379"},
		Etcd:     []string{"127.0.0.1:2379"},
		Missing:  map[string]string{"zookeeper": "ZooKeeper is not installed: get it"},
		Replicas: []*topology.Replica{{Name: "replica-1"}},
	}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\netcd:            127.0.0.1:2379\n", "\nZooKeeper:       ZooKeeper is not installed: get it\n"} {
		if !strings.Contains(got.String(), want) {
			t.Errorf("%q is not in the banner:\n%s", want, &got)
		}
	}
}
