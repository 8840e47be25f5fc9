// Package nginx holds the configuration of the load balancer in front of the replicas.
package nginx

import _ "embed"

// StockTemplate is the configuration of one load balancer. ${STOCK_UPSTREAM}, ${STOCK_LISTEN} and ${STOCK_SERVERS} are to
// be replaced; every other $ is nginx's own.
//
//go:embed stock.conf.template
var StockTemplate string
