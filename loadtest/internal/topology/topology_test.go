package topology_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"stock/internal/must"
	"stock/loadtest/internal/topology"
	"stock/nginx"
)

// lab is shared by the tests, which run one after another. A test that breaks a replica restarts it.
var lab *topology.Topology

func TestMain(m *testing.M) {
	if os.Getenv("LISTEN") != "" {
		openPorts(os.Args[1])
		return
	}
	if flag.Parse(); testing.Short() {
		fmt.Println("all tests need more than MySQL and Redis: leave -short out")
		return
	}
	os.Exit(run(m))
}

func run(m *testing.M) (code int) {
	ctx := context.Background()
	var err error
	if lab, err = topology.Start(ctx, topology.Options{Relaxed: true}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := lab.Stop(ctx); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}()
	if log := lab.Servers.Nginx.Tail(20); strings.Contains(log, "connect() failed") {
		// It would leave the replica out when a run begins.
		fmt.Fprintln(os.Stderr, "nginx asked a replica that did not listen yet:", log)
		return 1
	}
	return m.Run()
}

func TestNginxBalancesAllReplicasOrTheFirst(t *testing.T) {
	for url, want := range map[string]int{lab.URL: 2, lab.SingleURL: 4} {
		var first int
		for range 4 {
			if do(t, http.MethodGet, url+"/livez", nil, "").replica == "replica-1" {
				first++
			}
		}
		if first != want {
			t.Errorf("replica-1 has answered %d of 4 requests to %s, want %d", first, url, want)
		}
	}
}

// Replicas get the name of the upstream as Host. Some servers, such as Tomcat, refuse one with an underscore.
func TestUpstreamsHaveHostNames(t *testing.T) {
	sites, err := filepath.Glob(filepath.Join(filepath.Dir(lab.Nginx.Conf), "conf.d", "*.conf"))
	must.Succeed(t, err)
	var names []string
	for _, site := range sites {
		text, err := os.ReadFile(site)
		must.Succeed(t, err)
		for _, upstream := range regexp.MustCompile(`(?m)^upstream (\S+)`).FindAllStringSubmatch(string(text), -1) {
			names = append(names, upstream[1])
		}
	}
	if want := []string{"stock", "stock-1"}; !slices.Equal(names, want) {
		t.Errorf("the upstreams are %q, want %q", names, want)
	}
}

func TestRestartedReplicaKeepsItsAddress(t *testing.T) {
	replica := lab.Replicas[1]
	url, pid := replica.URL, replica.PID
	must.Succeed(t, replica.Restart(t.Context()))
	if replica.URL != url || replica.PID == pid {
		t.Errorf("process %d at %s after the restart, process %d at %s before: want another process, the same address",
			replica.PID, replica.URL, pid, url)
	}
	if status := do(t, http.MethodGet, url+"/readyz", nil, "").status; status != http.StatusOK {
		t.Errorf("/readyz answers %d", status)
	}
	if err := lab.Check(); err != nil {
		t.Error(err)
	}
}

func TestFailedStartSaysWhyAndLeavesNothing(t *testing.T) {
	temp, err := os.MkdirTemp("", "lab") // the name of t.TempDir is too long for sockets
	must.Succeed(t, err)
	defer os.RemoveAll(temp)
	t.Setenv("TMPDIR", temp)

	// The service refuses its configuration when everything else has started.
	_, err = topology.Start(t.Context(), topology.Options{Relaxed: true, ReplicaArgs: []string{"--lease=never"}})
	if err == nil || !strings.Contains(err.Error(), "--lease") {
		t.Errorf("error %v, want one with the replica's message about --lease", err)
	}
	left, err := filepath.Glob(filepath.Join(temp, "*", "*-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("these directories remain: %v, %v", left, err)
	}
	processes, err := filepath.Glob("/proc/[0-9]*/cmdline") // only Linux has any
	must.Succeed(t, err)
	for _, path := range processes {
		if line, _ := os.ReadFile(path); bytes.Contains(line, []byte(temp)) {
			t.Errorf("this process remains: %q", line)
		}
	}
	if err := lab.Check(); err != nil {
		t.Errorf("the other lab was affected: %v", err)
	}
}

func TestLabStartsWithoutEtcdAndZooKeeperAndSaysHowToInstallThem(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("on other systems, programs are also found outside PATH")
	}
	bin := t.TempDir()
	for _, name := range []string{
		"mysqld", "mariadbd", "redis-server", "valkey-server", "redis-check-rdb", "valkey-check-rdb", "nginx",
	} {
		if path, err := exec.LookPath(name); err == nil {
			must.Succeed(t, os.Symlink(path, filepath.Join(bin, name)))
		}
	}
	t.Setenv("PATH", bin)
	t.Setenv("JAVA_HOME", "")

	without, err := topology.Start(t.Context(), topology.Options{Relaxed: true, StockBinary: lab.StockBinary})
	must.Succeed(t, err)
	defer func() {
		if err := without.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	for name, want := range map[string]string{"etcd": "etcd-server", "zookeeper": "libzookeeper-java"} {
		if why := without.Missing[name]; !strings.Contains(why, "is not installed") || !strings.Contains(why, want) {
			t.Errorf("Missing[%q] = %q, want the name of the package %s in it", name, why, want)
		}
	}
	if len(without.Etcd)+len(without.ZooKeeper) > 0 {
		t.Errorf("etcd %v and ZooKeeper %v were started", without.Etcd, without.ZooKeeper)
	}
	if err := without.Check(); err != nil {
		t.Error(err)
	}
}

// The nginx image replaces every ${NAME} from the environment, so one of nginx's own variables written in braces would
// become empty.
func TestTemplateBracesOnlyItsOwnVariables(t *testing.T) {
	own := []string{"${STOCK_UPSTREAM}", "${STOCK_LISTEN}", "${STOCK_SERVERS}"}
	braced := regexp.MustCompile(`\$\{[^}]*\}`).FindAllString(nginx.StockTemplate, -1)
	for _, variable := range braced {
		if !slices.Contains(own, variable) {
			t.Errorf("%s is not a variable of the template", variable)
		}
	}
	for _, variable := range own {
		if !slices.Contains(braced, variable) {
			t.Errorf("%s is not in the template", variable)
		}
	}
}

type reply struct {
	status        int
	replica, body string
}

func do(t *testing.T, method, url string, header http.Header, body string) (r reply) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return r
	}
	maps.Copy(request.Header, header)
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Error(err)
		return r
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	r.status, r.body = response.StatusCode, string(text)
	r.replica = response.Header.Get("X-Replica")
	if err != nil {
		t.Errorf("%s %s: %v in %s", method, url, err, text)
	}
	return r
}
