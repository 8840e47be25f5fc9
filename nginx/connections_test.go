package nginx_test

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	"stock/nginx"
)

// Each user takes two connections of nginx: one from the client and one to the replica. One worker may serve all users.
func TestNginxServes2000UsersAtOnce(t *testing.T) {
	t.Parallel()
	const users = 2000
	arrived := make(chan struct{}, 2*users)
	release := make(chan struct{})
	replica := startReplica(t, func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-release
	})
	one := strings.Replace(nginx.Main(), "worker_processes auto", "worker_processes 1", 1)
	_, address := start(t, one, replica.address())
	url := "http://" + address
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answers := make(chan string, users)
	for range users {
		go func() {
			response, err := client.Post(url, "application/json", strings.NewReader("{}"))
			arrived <- struct{}{} // at the replica, or refused before
			if err != nil {
				answers <- err.Error()
				return
			}
			response.Body.Close()
			answers <- response.Status
		}()
	}
	for range users {
		<-arrived
	}
	close(release)
	counts := map[string]int{}
	for range users {
		counts[<-answers]++
	}
	if counts["200 OK"] != users {
		t.Errorf("the answers are %v, want %d times 200 OK", counts, users)
	}
}

// One worker may have to serve all users.
func TestAWorkerHasConnectionsFor3000Users(t *testing.T) {
	t.Parallel()
	server, _ := start(t, nginx.Main(), startReplica(t, ok).address())
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	conf, err := os.ReadFile(server.Conf)
	if err != nil {
		t.Fatal(err)
	}
	for _, directive := range []string{"worker_connections", "worker_rlimit_nofile"} {
		var value uint64
		_, rest, _ := strings.Cut(string(conf), directive)
		if _, err := fmt.Sscan(strings.TrimRight(strings.Fields(rest)[0], ";"), &value); err != nil {
			t.Fatal(err)
		}
		if value < min(2*3000, files.Max) || value > files.Max {
			t.Errorf("%s is %d, want at least %d and at most the hard limit %d", directive, value, 2*3000, files.Max)
		}
	}
	if log := server.Tail(20); strings.Contains(log, "limit") || strings.Contains(log, "RLIMIT") {
		t.Errorf("nginx complains about a limit: %s", log)
	}
}
