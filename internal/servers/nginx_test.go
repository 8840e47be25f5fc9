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

	"stock/internal/must"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
	"stock/nginx"
)

// hello returns the configuration of a site that answers hello, and its address.
func hello(t *testing.T) (site, addr string) {
	t.Helper()
	port, err := servers.FreePort()
	must.Succeed(t, err)
	addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	return fmt.Sprintf("server { listen %s; location / { return 200 hello; } }\n", addr), addr
}

func TestNginxServesAfterARestartAndStopFreesThePortAndTheDirectory(t *testing.T) {
	t.Parallel()
	site, addr := hello(t)
	server, err := servers.StartNginx(t.Context(), servers.NginxOptions{
		Main: nginx.Main(), Sites: site, Ready: []string{"http://" + addr},
	})
	must.Succeed(t, err)
	for range 2 {
		if got := get(t, "http://"+addr); got != "hello" {
			t.Errorf("nginx answers %q, want hello", got)
		}
		must.Succeed(t, server.Restart(t.Context()))
	}
	if !strings.HasPrefix(server.Version, "nginx 1.") {
		t.Errorf("the version is %q, want nginx 1.x", server.Version)
	}
	must.Succeed(t, server.Stop(t.Context()))
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
	must.Succeed(t, err)
	if running := serverstest.Running(t, server.PID); len(running) < 2 {
		t.Errorf("nginx runs as the processes %v, want a master and workers", running)
	}
	must.Succeed(t, server.Signal(syscall.SIGKILL))
	<-server.Done()
	serverstest.Gone(t, []int{server.PID}, []string{addr})
	must.Succeed(t, server.Stop(t.Context()))
}

func get(t *testing.T, url string) string {
	t.Helper()
	response, err := http.Get(url)
	must.Succeed(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	must.Succeed(t, err)
	return string(body)
}
