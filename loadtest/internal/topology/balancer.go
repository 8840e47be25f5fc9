package topology

import (
	"context"
	"errors"
	"strings"

	"stock/internal/servers"
	"stock/nginx"
)

// StartBalancer starts an nginx that is configured like the topology's for other replicas (host:port), and returns its
// URL. With resend, it also sends a POST again whose connection broke, which the topology's never does.
func StartBalancer(ctx context.Context, resend bool, replicas ...string) (n *servers.Nginx, url string, err error) {
	listen, err := freeAddr()
	if err != nil {
		return nil, "", err
	}
	site := nginx.Render("stock", listen, replicas)
	if resend {
		const usual = "proxy_next_upstream error timeout;"
		if !strings.Contains(site, usual) {
			return nil, "", errors.New("the template of nginx does not say when a request is passed on")
		}
		site = strings.Replace(site, usual, "proxy_next_upstream error timeout non_idempotent;", 1)
	}
	url = "http://" + listen
	n, err = startNginx(ctx, site, url)
	return n, url, err
}
