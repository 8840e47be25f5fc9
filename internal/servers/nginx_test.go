package servers_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"stock/internal/servers"
	"stock/internal/servers/serverstest"
	"stock/nginx"
)

// hello returns the configuration of a site that answers hello, and its address.
func hello(t *testing.T) (site, addr string) {
	t.Helper()
	port, err := servers.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	return fmt.Sprintf("server { listen %s; location / { return 200 hello; } }\n", addr), addr
}

func TestNginxServesAfterARestartAndStopFreesThePortAndTheDirectory(t *testing.T) {
	t.Parallel()
	site, addr := hello(t)
	server, err := servers.StartNginx(t.Context(), servers.NginxOptions{
		Main: nginx.Main(), Sites: site, Ready: []string{"http://" + addr},
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got := get(t, "http://"+addr); got != "hello" {
			t.Errorf("nginx answers %q, want hello", got)
		}
		if err := server.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if !strings.HasPrefix(server.Version, "nginx 1.") {
		t.Errorf("the version is %q, want nginx 1.x", server.Version)
	}
	if err := server.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	gone(t, server.Process)
}

func TestFailedStartOfNginxShowsItsLog(t *testing.T) {
	t.Parallel()
	_, err := servers.StartNginx(t.Context(), servers.NginxOptions{
		Main:  "no_such_directive;\n",
		Ready: []string{"http://127.0.0.1:1"},
	})
	contains(t, err, "ended before it was ready", "no_such_directive")
}

func TestKillingTheNginxMasterEndsItsWorkersAndFreesThePort(t *testing.T) {
	t.Parallel()
	site, addr := hello(t)
	server, err := servers.StartNginx(t.Context(), servers.NginxOptions{
		Main: nginx.Main(), Sites: site, Ready: []string{"http://" + addr},
	})
	if err != nil {
		t.Fatal(err)
	}
	if running := serverstest.Running(t, server.PID); len(running) < 2 {
		t.Errorf("nginx runs as the processes %v, want a master and workers", running)
	}
	if err := server.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-server.Done()
	serverstest.Gone(t, []int{server.PID}, []string{addr})
	if err := server.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

func get(t *testing.T, url string) string {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}
