package topology

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"

	"stock/internal/servers"
	"stock/nginx"
)

// balance starts one nginx that balances all replicas on one port and, on a port for each smaller number, the first
// replicas only. It balances the bare servers, if there are any, on one more.
func (t *Topology) balance(ctx context.Context, o Options) error {
	all, err := listenAddr(o.Listen, 0)
	if err != nil {
		return err
	}
	t.URL, t.Fewer = "http://"+all, map[int]string{}
	ready := []string{t.URL}

	var replicas []string
	for _, r := range t.Replicas {
		replicas = append(replicas, strings.TrimPrefix(r.URL, "http://"))
	}
	var sites strings.Builder
	sites.WriteString(nginx.Render("stock", all, replicas))
	for n := 1; n < max(len(replicas), 2); n++ {
		listen, err := freeAddr()
		if err != nil {
			return err
		}
		t.Fewer[n] = "http://" + listen
		ready = append(ready, t.Fewer[n])
		sites.WriteString(nginx.Render("stock-"+strconv.Itoa(n), listen, replicas[:n]))
	}
	t.SingleURL = t.Fewer[1]
	t.Servers.Nginx, err = startNginx(ctx, sites.String(), ready...)
	if err != nil {
		return err
	}
	t.Nginx = Nginx{PID: t.Servers.Nginx.PID, Conf: t.Servers.Nginx.Conf}
	t.Environment.Nginx = t.Servers.Nginx.Version
	return nil
}

// startNginx starts an nginx with the given sites, and waits until it answers at each of the URLs.
func startNginx(ctx context.Context, sites string, urls ...string) (*servers.Nginx, error) {
	var ready []string
	for _, url := range urls {
		ready = append(ready, url+"/livez")
	}
	return servers.StartNginx(ctx, servers.NginxOptions{Main: nginx.Main(), Sites: sites, Ready: ready})
}

// listenAddr returns the given address with offset added to its port. If the address is empty or its port is 0, it
// returns a free address.
func listenAddr(address string, offset int) (string, error) {
	if address == "" {
		return freeAddr()
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", err
	}
	first, err := strconv.Atoi(port)
	switch {
	case err != nil:
		return "", fmt.Errorf("port of %s: %w", address, err)
	case first == 0:
		return freeAddr()
	}
	return net.JoinHostPort(host, strconv.Itoa(first+offset)), nil
}

func freeAddr() (string, error) {
	port, err := servers.FreePort()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), err
}
