package main

import (
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"stock/internal/must"
	"stock/loadtest/internal/topology"
)

// deduct deducts a unit and wants 200.
func deduct(t *testing.T, url string) {
	t.Helper()
	response, err := http.Post(url+"/stock/deduct?goods_id=1&count=1", "", nil)
	must.Succeed(t, err)
	response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("a deduction is answered %s", response.Status)
	}
}

// interrupt presses Ctrl-C and wants exit status 0.
func interrupt(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	must.Succeed(t, cmd.Process.Signal(os.Interrupt))
	if err := cmd.Wait(); err != nil {
		t.Errorf("up ends with %v, want status 0", err)
	}
}

func TestBannerSaysWhereEtcdAndZooKeeperAreOrHowToInstallThem(t *testing.T) {
	t.Parallel()
	var got strings.Builder
	if err := new(upFlags).writeBanner(&got, &topology.Topology{
		MySQLDSN: "root@tcp(127.0.0.1:3306)/stock",
		Redis:    []string{"127.0.0.1:6379"},
		Etcd:     []string{"127.0.0.1:2379"},
		Missing:  map[string]string{"zookeeper": "ZooKeeper is not installed: get it"},
		Replicas: []*topology.Replica{{Name: "replica-1"}},
	}, "http://127.0.0.1:8001/"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"In the browser:  http://127.0.0.1:8001/\n",
		"\netcd:            127.0.0.1:2379\n", "\nZooKeeper:       ZooKeeper is not installed: get it\n",
	} {
		if !strings.Contains(got.String(), want) {
			t.Errorf("%q is not in the banner:\n%s", want, &got)
		}
	}
}
