package servers_test

import (
	"fmt"
	"io"
	"net/http"
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
	addr = serverstest.FreeAddress(t)
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
	must.Succeed(t, server.Stop(t.Context()))
	gone(t, server.Process)
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
