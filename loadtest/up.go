package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/spf13/cobra"

	"stock/loadtest/internal/topology"
)

// Where the README's commands expect the service, as docker compose publishes it.
const (
	usualListen      = "127.0.0.1:8000"
	usualAdminListen = "127.0.0.1:9001"
)

// ifFree returns the address, or nothing where somebody has it or one of the ports after it: two labs can be up at once.
func ifFree(address string, ports int) string {
	host, first, err := net.SplitHostPort(address)
	if err != nil {
		return ""
	}
	port, err := strconv.Atoi(first)
	if err != nil {
		return ""
	}
	for i := range ports {
		listener, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port+i)))
		if err != nil {
			return ""
		}
		listener.Close()
	}
	return address
}

func upCommand() *cobra.Command {
	var (
		local       localFlags
		replicas    int
		listen      string
		adminListen string
		asJSON      bool
		pausePoints bool
	)
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start the servers, two replicas and nginx, and keep them until Ctrl-C",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if replicas < 1 {
				return fmt.Errorf("--replicas %d: at least 1 is needed", replicas)
			}
			ctx := cmd.Context()
			t, err := topology.Start(ctx, topology.Options{
				Replicas: replicas, StockBinary: local.stockBinary, PausePoints: pausePoints,
				Listen:      cmp.Or(listen, ifFree(usualListen, 1)),
				AdminListen: cmp.Or(adminListen, ifFree(usualAdminListen, replicas)),
			})
			if err != nil {
				return cmp.Or(ctx.Err(), err) // an interrupted start fails in many ways
			}
			defer func() {
				ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
				defer cancel()
				err = errors.Join(err, t.Stop(ctx))
			}()
			if asJSON {
				err = json.NewEncoder(cmd.OutOrStdout()).Encode(t)
			} else {
				err = banner(cmd.OutOrStdout(), t)
			}
			if err != nil {
				return err
			}
			died := t.Died()
			for {
				select {
				case <-ctx.Done():
					return nil
				case death := <-died:
					// It may be what the user wanted to see.
					fmt.Fprintf(cmd.ErrOrStderr(), "%v\n\nThe other parts go on; Ctrl-C stops them.\n", death)
				}
			}
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVar(&asJSON, "json", false, "print one JSON object in place of the banner")
	flags.StringVar(&listen, "listen", "", "host:port of the service (default: "+usualListen+" if it is free, else any free port)")
	flags.StringVar(&adminListen, "admin-listen", "", "host:port of the first replica's admin listener, the others follow (default: "+usualAdminListen+" if it is free, else any free ports)")
	flags.IntVar(&replicas, "replicas", 2, "replicas of the service")
	flags.BoolVar(&pausePoints, "pause-points", false, "let requests stop halfway (header X-Pause)")
	local.register(flags)
	return cmd
}

// banner tells where everything is and how to look at it.
func banner(w io.Writer, t *topology.Topology) error {
	config, err := mysql.ParseDSN(t.MySQLDSN)
	if err != nil {
		return err
	}
	var b strings.Builder
	line := func(name, value string) { fmt.Fprintf(&b, "%-16s %s\n", name+":", value) }
	line("Service", t.URL)
	line("One replica", t.SingleURL)
	line("API docs", t.URL+"/docs")
	for _, r := range t.Replicas {
		line(r.Name, r.URL)
		line(r.Name+" admin", r.AdminURL)
	}
	line("MySQL DSN", t.MySQLDSN)
	line("Redis", strings.Join(t.Redis, ", "))
	line("Redlock", strings.Join(t.Redlock, ", "))
	line("etcd", cmp.Or(strings.Join(t.Etcd, ", "), t.Missing["etcd"]))
	line("ZooKeeper", cmp.Or(strings.Join(t.ZooKeeper, ", "), t.Missing["zookeeper"]))
	line("nginx", t.Nginx.Conf)

	host, port, err := net.SplitHostPort(config.Addr)
	if err != nil {
		return err
	}
	fmt.Fprintf(&b, "\nmysql -h %s -P %s -u %s", host, port, config.User)
	if config.Passwd != "" {
		fmt.Fprintf(&b, " -p%s", config.Passwd)
	}
	fmt.Fprintf(&b, " %s -e 'SELECT * FROM good_stock'\n", config.DBName)
	redisHost, redisPort, err := net.SplitHostPort(t.Redis[0])
	if err != nil {
		return err
	}
	fmt.Fprintf(&b, "redis-cli -h %s -p %s GET 'stock:{1}'\n\n", redisHost, redisPort)
	fmt.Fprintf(&b, "curl -X POST '%s/stock/deduct?goods_id=1&count=1&strategy=update'\n", t.URL)
	fmt.Fprintf(&b, "curl %s/stock/1\n", t.URL)
	fmt.Fprintf(&b, "curl %s/strategies\n", t.URL)
	fmt.Fprintf(&b, "curl -X PUT %s/admin/stock/1 -H 'Content-Type: application/json' -d '{\"stock\":6000}'\n", t.Replicas[0].AdminURL)
	if usual := "http://" + usualListen; t.URL != usual {
		fmt.Fprintf(&b, "\nNote: this lab is not at %s, where the README's commands go.\n", usual)
	}
	fmt.Fprintf(&b, "\nCtrl-C stops everything.\n")
	_, err = io.WriteString(w, b.String())
	return err
}
