package topology

import (
	"context"
	"errors"
	"strings"

	"stock/internal/servers"
	"stock/nginx"
)

// Balancer is an nginx of its own in front of some replicas.
type Balancer struct {
	*servers.Nginx
	URL string
}

// StartBalancer starts an nginx that balances replicas (host:port) as that of the topology does. If resend is set, it
// also does what that one never does: it sends a POST again whose connection broke.
func StartBalancer(ctx context.Context, resend bool, replicas ...string) (*Balancer, error) {
	listen, err := freeAddr()
	if err != nil {
		return nil, err
	}
	site := nginx.Render("stock", listen, replicas)
	if resend {
		const usual = "proxy_next_upstream error timeout;"
		if !strings.Contains(site, usual) {
			return nil, errors.New("the template of nginx does not say when a request is passed on")
		}
		site = strings.Replace(site, usual, "proxy_next_upstream error timeout non_idempotent;", 1)
	}
	b := &Balancer{URL: "http://" + listen}
	b.Nginx, err = startNginx(ctx, site, b.URL)
	return b, err
}
