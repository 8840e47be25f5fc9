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
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"stock/loadtest/internal/console"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/lab"
	"stock/loadtest/internal/load"
	"stock/loadtest/internal/topology"
)

// The addresses that the README uses, and of which docker compose publishes the first two.
const (
	usualListen      = "127.0.0.1:8000"
	usualAdminListen = "127.0.0.1:9001"
	usualConsole     = "127.0.0.1:8001"
)

type upFlags struct {
	local       localFlags
	servers     serverFlags
	replicas    int
	listen      string
	adminListen string
	asJSON      bool
	lease       time.Duration
	clusters    clusterFlags

	console string // host:port; empty: none

	given *pflag.FlagSet
}

func upCommand(getenv func(string) string) *cobra.Command {
	var f upFlags
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start the servers, replicas, nginx and a page for the browser, and keep them running until Ctrl-C",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.servers.readAccount(getenv); err != nil {
				return err
			}
			f.given = cmd.Flags()
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f.register(cmd.Flags())
	return cmd
}

func (f *upFlags) register(flags *pflag.FlagSet) {
	flags.SortFlags = false
	flags.BoolVar(&f.asJSON, "json", false, "print one JSON object instead of the banner")
	flags.StringVar(&f.console, "console", usualConsole,
		"host:port of the lab in the browser, on a loopback address; any free port if the usual one is taken; '' for none")
	flags.StringVar(&f.listen, "listen", "",
		"host:port of the service (default: "+usualListen+" if it is free, else any free port)")
	flags.StringVar(&f.adminListen, "admin-listen", "", "host:port of the first replica's admin listener, the others "+
		"use the ports after it (default: "+usualAdminListen+" if it is free, else any free ports)")
	flags.IntVar(&f.replicas, "replicas", 2, fmt.Sprintf("replicas of the service: 1 to %d", load.MaxReplicas))
	flags.DurationVar(&f.lease, "lease", 30*time.Second,
		"time after which the lock of a dead holder expires")
	f.clusters.register(flags)
	f.local.register(flags)
	f.local.registerTiDB(flags)
	f.servers.register(flags)
}

func (f *upFlags) run(ctx context.Context, stdout, stderr io.Writer) (err error) {
	if err := checkReplicas(f.replicas); err != nil {
		return err
	}
	if err := f.clusters.check(); err != nil {
		return err
	}
	if err := f.servers.checkOwn(f.local.tidb, f.clusters.redis); err != nil {
		return err
	}
	if err := checkFree(f.listen, 1); err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	if err := checkFree(f.adminListen, f.replicas); err != nil {
		return fmt.Errorf("--admin-listen: %w", err)
	}
	listener, err := f.listenForConsole()
	if err != nil {
		return fmt.Errorf("--console: %w", err)
	}
	if listener != nil {
		defer listener.Close()
	}
	fmt.Fprintf(stderr, "starting the servers, nginx and the service (replicas: %d) …\n", f.replicas)
	l, err := lab.Start(ctx, f.clusters.options(topology.Options{
		Replicas:     f.replicas,
		RedisReplica: true,
		StockBinary:  f.local.stockBinary,
		TiDB:         f.local.tidb,
		User:         f.servers.userServers(f.replicas + 2),
		ReplicaArgs:  []string{"--lease=" + f.lease.String()},
		Listen:       cmp.Or(f.listen, ifFree(usualListen, 1)),
		AdminListen:  cmp.Or(f.adminListen, ifFree(usualAdminListen, f.replicas)),
	}))
	if err != nil {
		return startError(ctx, err)
	}
	defer func() {
		if err = errors.Join(err, l.Close()); err == nil {
			fmt.Fprintln(stderr, "stopped")
		}
	}()
	warnOfServers(stderr, l)
	died := l.Topology.Died(ctx)
	address, stop, err := f.startConsole(ctx, l, listener)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()

	if f.asJSON {
		err = json.NewEncoder(stdout).Encode(upDescription{l.Topology, address, l.Topology.ShownDSN()})
	} else {
		err = f.writeBanner(stdout, l.Topology, address)
	}
	if err != nil {
		return err
	}
	reportDeaths(ctx, stderr, died)
	return nil
}

// upDescription is what --json prints.
type upDescription struct {
	*topology.Topology
	Console  string `json:"console,omitempty"` // address of the console
	MySQLDSN string `json:"mysql_dsn"`         // without the password of the user
}

// reportDeaths writes each death until ctx ends. The other parts keep running: the user may have killed this one to see
// what happens.
func reportDeaths(ctx context.Context, stderr io.Writer, died <-chan error) {
	for death := range died {
		if ctx.Err() == nil {
			fmt.Fprintf(stderr, "%v\n\nThe other parts keep running; Ctrl-C stops them.\n", death)
		}
	}
	<-ctx.Done()
}

// listenForConsole opens the console's port before anything else uses it. If the usual port is taken,
// any free one is used; a port that the user names must be free.
func (f *upFlags) listenForConsole() (net.Listener, error) {
	if f.console == "" {
		return nil, nil
	}
	listener, err := console.Listen(f.console)
	if err != nil && !f.given.Changed("console") {
		return console.Listen("127.0.0.1:0")
	}
	return listener, err
}

// startConsole serves the console, if there is a listener for it, and returns its address. stop ends it.
func (f *upFlags) startConsole(ctx context.Context, l *lab.Lab, listener net.Listener) (
	address string, stop func() error, err error,
) {
	if listener == nil {
		return "", func() error { return nil }, nil
	}
	command, note := f.runCommand(f.given)
	c, err := console.Start(ctx, listener, console.Options{
		Lab: l,
		NewRun: func(
			ctx context.Context, args []string, watch func(history.Run) func(*history.Op),
		) (*lab.Run, error) {
			return newConsoleRun(ctx, l, args, watch)
		},
		Command: command, CommandNote: note,
	})
	if err != nil {
		return "", nil, cmp.Or(ctx.Err(), err)
	}
	return c.URL(), func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*lab.StopTime)
		defer cancel()
		return c.Stop(ctx)
	}, nil
}

// runCommand returns the beginning of a command that runs strategies on a lab like this one, and what to do before it.
// It contains no password, because other users of the host can read a command line and the page of the console.
func (f *upFlags) runCommand(given *pflag.FlagSet) (command, note string) {
	command = "go run ./loadtest run"
	known := pflag.NewFlagSet("run", pflag.ContinueOnError)
	new(runFlags).register(known)
	for _, option := range givenOptions(given)[1:] {
		name, _, _ := strings.Cut(strings.TrimPrefix(option, "--"), "=")
		if known.Lookup(name) != nil && name != "mysql-dsn" {
			command += " " + option
		}
	}
	if f.servers.mysqlDSN != "" || f.servers.account.RedisPassword != "" {
		note = "Set LOADTEST_MYSQL_DSN and LOADTEST_REDIS_PASSWORD first, as for this lab."
	}
	return command, note
}

// newConsoleRun prepares what "loadtest run" does with the given flags, on a lab that is up.
func newConsoleRun(
	ctx context.Context, l *lab.Lab, args []string, watch func(history.Run) func(*history.Op),
) (*lab.Run, error) {
	var f runFlags
	flags := pflag.NewFlagSet("run", pflag.ContinueOnError)
	f.register(flags)
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if err := f.check(flags); err != nil {
		return nil, err
	}
	f.setDefaults(flags)
	f.options = givenOptions(flags)
	f.Replicas = len(l.Topology.Replicas) // the lab has them already
	dir, removeIfEmpty, err := lab.CreateDir("")
	if err != nil {
		return nil, err
	}
	f.Dir = dir
	options := f.runOptions()
	options.Config.Watch = watch
	options.Notes = []string{"Run from the console: the browser that shows it uses CPU time, too."}
	run, err := l.NewRun(ctx, options)
	if err != nil {
		removeIfEmpty()
	}
	return run, err
}

// ifFree returns the address if it and the ports after it are free, else "". Several labs can then be up at the same
// time.
func ifFree(address string, ports int) string {
	if checkFree(address, ports) != nil {
		return ""
	}
	return address
}

// checkFree returns an error if the address or one of the ports after it is in use. The empty address and port 0 stand
// for any free port.
func checkFree(address string, ports int) error {
	if address == "" {
		return nil
	}
	host, first, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	port, err := strconv.Atoi(first)
	if err != nil || port == 0 {
		return err
	}
	for i := range ports {
		listener, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port+i)))
		if err != nil {
			return fmt.Errorf("%w: choose another port, or leave the flag out for one that is free", err)
		}
		listener.Close()
	}
	return nil
}

// writeBanner shows where everything listens, and commands to look at it.
func (f *upFlags) writeBanner(w io.Writer, t *topology.Topology, address string) error {
	var b strings.Builder
	line := func(name, value string) { fmt.Fprintf(&b, "%-16s %s\n", name+":", value) }
	if address != "" {
		line("In the browser", address)
	}
	line("Service", t.URL)
	line("Replica 1 only", t.SingleURL+"  (through nginx)")
	line("API docs", t.URL+"/docs")
	for _, r := range t.Replicas {
		line(r.Name, fmt.Sprintf("%s  (pid %d)", r.URL, r.PID))
		line(r.Name+" admin", r.AdminURL)
	}
	line("MySQL DSN", t.ShownDSN())
	line("Redis", strings.Join(t.Redis, ", "))
	line("Redlock", cmp.Or(strings.Join(t.Redlock, ", "), t.Missing["redlock"]))
	line("etcd", cmp.Or(strings.Join(t.Etcd, ", "), t.Missing["etcd"]))
	line("ZooKeeper", cmp.Or(strings.Join(t.ZooKeeper, ", "), t.Missing["zookeeper"]))
	line("nginx", t.Nginx.Conf)
	if err := f.servers.writeCommands(&b, t); err != nil {
		return err
	}
	if usual := "http://" + usualListen; t.URL != usual {
		fmt.Fprintf(&b, "\nNote: the README's commands use %s, but this lab does not listen there. Another program may: "+
			"use the addresses above instead.\n", usual)
	}
	fmt.Fprintf(&b, "\nCtrl-C stops everything.\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// writeCommands writes one example command per line. The clients of the user's own servers may need more options.
func (f *serverFlags) writeCommands(b *strings.Builder, t *topology.Topology) error {
	config, err := mysql.ParseDSN(t.MySQLDSN)
	if err != nil {
		return err
	}
	b.WriteByte('\n')
	if host, port, _ := strings.Cut(config.Addr, ":"); f.mysqlDSN == "" {
		fmt.Fprintf(b, "mysql -h %s -P %s -u %s -p%s %s -e 'SELECT * FROM good_stock'\n",
			host, port, config.User, config.Passwd, config.DBName)
	}
	if host, port, _ := strings.Cut(t.Redis[0], ":"); len(f.redis) == 0 {
		fmt.Fprintf(b, "redis-cli -c -h %s -p %s GET '%sstock:{1}'\n", host, port, t.KeyPrefix)
	}
	fmt.Fprintf(b, "\ncurl -X POST '%s/stock/deduct?goods_id=1&count=1&strategy=update'\n", t.URL)
	fmt.Fprintf(b, "curl %s/stock/1\n", t.URL)
	fmt.Fprintf(b, "curl %s/strategies\n", t.URL)
	fmt.Fprintf(b, "curl -X PUT %s/admin/stock/1 -H 'Content-Type: application/json' -d '{\"stock\":6000}'\n",
		t.Replicas[0].AdminURL)
	return nil
}
