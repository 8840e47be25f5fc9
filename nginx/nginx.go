// Package nginx holds the configuration of the load balancer in front of the replicas.
package nginx

import (
	_ "embed"
	"strings"
)

// StockTemplate is the configuration of one load balancer. ${STOCK_UPSTREAM}, ${STOCK_LISTEN} and ${STOCK_SERVERS} are
// placeholders; every other $ belongs to nginx.
//
//go:embed stock.conf.template
var StockTemplate string

// Render fills in the template as docker compose does: upstream is a name, and listen and replicas are host:port.
func Render(upstream, listen string, replicas []string) string {
	var servers []string
	for _, replica := range replicas {
		servers = append(servers, "server "+replica+" max_fails=0;")
	}
	return strings.NewReplacer(
		"${STOCK_UPSTREAM}", upstream,
		"${STOCK_LISTEN}", listen,
		"${STOCK_SERVERS}", strings.Join(servers, " "),
	).Replace(StockTemplate)
}
