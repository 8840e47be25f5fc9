// Package nginx holds the configuration of the load balancer in front of the replicas.
package nginx

import (
	_ "embed"
	"strconv"
	"strings"
	"syscall"
)

//go:embed nginx.conf
var mainConf string

// StockTemplate is the configuration of one load balancer. ${STOCK_UPSTREAM}, ${STOCK_LISTEN} and ${STOCK_SERVERS} are
// placeholders; every other $ belongs to nginx.
//
//go:embed stock.conf.template
var StockTemplate string

// connections is the number in nginx.conf.
const connections = 16384

// Main returns the main configuration, with fewer connections if this process may not open as many files: only root may
// exceed the hard limit.
func Main() string {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil || files.Max >= connections {
		return mainConf
	}
	from, to := strconv.Itoa(connections), strconv.FormatUint(files.Max, 10)
	return strings.NewReplacer(
		"worker_rlimit_nofile "+from, "worker_rlimit_nofile "+to,
		"worker_connections "+from, "worker_connections "+to,
	).Replace(mainConf)
}

// Render fills in the template as docker compose does: upstream is a host name, which replicas get as Host,
// and listen and replicas are host:port.
func Render(upstream, listen string, replicas []string) string {
	var servers []string
	for _, replica := range replicas {
		servers = append(servers, "server "+replica+" max_fails=1 fail_timeout=10s;")
	}
	if len(replicas) > 1 { // nginx never leaves out a replica that is the only one
		for _, replica := range replicas {
			servers = append(servers, "server "+replica+" max_fails=0 backup;")
		}
	}
	return strings.NewReplacer(
		"${STOCK_UPSTREAM}", upstream,
		"${STOCK_LISTEN}", listen,
		"${STOCK_SERVERS}", strings.Join(servers, " "),
	).Replace(StockTemplate)
}
