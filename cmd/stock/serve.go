package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"stock/internal/stock"
	"stock/internal/stock/httpapi"
)

type serveOptions struct {
	storeOptions
	logOptions
	listen, adminListen, replica           string
	strategy                               string
	lockWait, lease, poll                  time.Duration
	requestTimeout, drainDelay, drainLimit time.Duration
	pausePoints                            bool
}

func newServe(getenv func(string) string) *cobra.Command {
	var o serveOptions
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve deductions over HTTP until SIGTERM or SIGINT",
		Long: `Serve deductions over HTTP until SIGTERM or SIGINT: then /readyz answers 503, requests under way are finished, and the
exit status is 0. A second signal kills at once.

The service starts whether its servers are up or not. A strategy that needs one that is not configured is listed as
unavailable and answers 503. Every server that is configured must answer for /readyz to say 200.

--redis is one server, or several of a Redis Cluster, or with --redis-master the Sentinels that watch a master of that name.
Both may lose the last writes when a replica takes over, stock and locks alike: Redis replicates after it has replied.
STOCK_REDIS_PASSWORD is the password of every Redis server; Sentinels are asked without. Of the DSN, interpolateParams,
clientFoundRows and parseTime are always on; innodb_lock_wait_timeout is --lock-wait and readTimeout is --request-timeout
and 5 s, unless the DSN says otherwise.

A strategy with a fence refuses every token below the last one. A lock service that has lost its data counts from the
beginning, and all its requests are refused as busy until the stock is set anew: PUT /admin/stock/{goods_id} on the admin
listener forgets the tokens.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.password = getenv("STOCK_REDIS_PASSWORD")
			return o.serve(cmd.Context(), cmd.ErrOrStderr())
		},
	}
	hostname, _ := os.Hostname() // no name is not worth failing for
	setFlags(cmd, getenv,
		group("Addresses", func(f *pflag.FlagSet) {
			f.StringVar(&o.listen, "listen", "127.0.0.1:8080", "`host:port` of the public listener; port 0 takes a free one and logs it")
			f.StringVar(&o.adminListen, "admin-listen", "127.0.0.1:9090", "`host:port` of the admin listener (metrics, profiles, setting stock): never expose it; empty for none")
			f.StringVar(&o.replica, "replica", cmp.Or(hostname, "stock"), "`name` of this replica, in the header X-Replica of every reply")
		}),
		group("Servers", func(f *pflag.FlagSet) {
			o.dsnFlag(f)
			f.IntVar(&o.mysqlConns, "mysql-conns", 32, "most `connections` to MySQL, beside those of --mysql-lock-conns")
			f.IntVar(&o.mysqlLockConns, "mysql-lock-conns", 16, "most `connections` to MySQL for its named locks: each goods that is locked, or waited for, takes one")
			o.redisFlag(f)
			f.IntVar(&o.redisConns, "redis-conns", 64, "most `connections` to each Redis server")
			f.StringSliceVar(&o.redlock, "redlock", nil, "independent Redis masters for Redlock, as a comma-separated list of `host:port`: an odd number, at least three")
			f.StringSliceVar(&o.etcd, "etcd", nil, "members of one etcd cluster, as a comma-separated list of `host:port`")
			f.StringSliceVar(&o.zookeeper, "zookeeper", nil, "members of one ZooKeeper ensemble, as a comma-separated list of `host:port`")
		}),
		group("Strategies", func(f *pflag.FlagSet) {
			f.StringVar(&o.strategy, "default-strategy", "update", "`name` of the strategy for requests that name none; GET /strategies lists them")
			f.DurationVar(&o.lockWait, "lock-wait", 10*time.Second, "longest wait for a lock, a retry or a connection, before a request is refused as busy")
			f.DurationVar(&o.lease, "lease", 30*time.Second, "time that a lock outlives a holder that died; with --zookeeper also its session timeout, at most 40 s, which ZooKeeper makes 4 s where it is less, by its defaults")
			f.DurationVar(&o.poll, "poll", 50*time.Millisecond, "pause between two tries of a lock that polls")
			f.BoolVar(&o.pausePoints, "pause-points", false, "let clients stop requests halfway with the header X-Pause: only for a lab")
		}),
		group("Limits", func(f *pflag.FlagSet) {
			f.DurationVar(&o.requestTimeout, "request-timeout", 15*time.Second, "longest time for one request")
			f.DurationVar(&o.drainDelay, "drain-delay", 0, "time at shutdown in which /readyz says 503 and requests are still accepted, for load balancers to notice")
			f.DurationVar(&o.drainLimit, "drain-timeout", 20*time.Second, "longest time at shutdown for requests under way; then they are canceled")
		}),
		o.logOptions.group(),
	)
	complete(cmd, "default-strategy", func() (names []string) {
		for _, s := range stock.Catalogue {
			names = append(names, s.Name+"\t"+s.Summary)
		}
		return names
	})
	complete(cmd, "log-format", func() []string { return []string{"text", "json"} })
	complete(cmd, "log-level", func() []string { return []string{"debug", "info", "warn", "error"} })
	return cmd
}

// complete offers the values of a flag to the shell.
func complete(cmd *cobra.Command, flag string, values func() []string) {
	err := cmd.RegisterFlagCompletionFunc(flag, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return values(), cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil {
		panic(err) // there is no such flag, or it was completed already
	}
}

// leastLease is the shortest --lease: less is not told from the pauses of a busy machine.
const leastLease = 100 * time.Millisecond

// longestSession is what ZooKeeper makes of a longer session by default: 20 ticks. The client does not tell what was granted,
// and a lock would vouch for a lease that has ended. A session that ZooKeeper makes longer, 2 ticks at least, does no harm.
const longestSession = 40 * time.Second

func (o *serveOptions) validate() error {
	errs := []error{
		checkAddress("listen", o.listen),
		o.checkRedis(),
		o.checkRedlock(),
		checkServers("etcd", o.etcd),
		checkServers("zookeeper", o.zookeeper),
		checkPositive("lock-wait", o.lockWait),
		checkPositive("poll", o.poll),
		checkPositive("request-timeout", o.requestTimeout),
		checkPositive("drain-timeout", o.drainLimit),
	}
	if o.adminListen != "" {
		errs = append(errs, checkAddress("admin-listen", o.adminListen))
	}
	if o.mysqlConns < 1 || o.mysqlLockConns < 1 || o.redisConns < 1 {
		errs = append(errs, usagef("--mysql-conns is %d, --mysql-lock-conns is %d and --redis-conns is %d: they must be at least 1",
			o.mysqlConns, o.mysqlLockConns, o.redisConns))
	}
	if o.lease < leastLease {
		errs = append(errs, usagef("--lease is %v: it must be at least %v, or it runs out during ordinary work", o.lease, leastLease))
	}
	if len(o.zookeeper) > 0 && o.lease > longestSession {
		errs = append(errs, usagef("--lease is %v: with --zookeeper it must be at most %v, which ZooKeeper shortens a longer session to", o.lease, longestSession))
	}
	if o.poll >= o.lease {
		errs = append(errs, usagef("--poll is %v and --lease is %v: a lock must be polled more often than it ends by itself", o.poll, o.lease))
	}
	if o.lockWait >= o.requestTimeout {
		errs = append(errs, usagef("--lock-wait is %v and --request-timeout is %v: the wait must end first, or a request that waited has no time to work", o.lockWait, o.requestTimeout))
	}
	if o.drainDelay < 0 {
		errs = append(errs, usagef("--drain-delay is %v: it must not be below 0", o.drainDelay))
	}
	if o.pausePoints && o.adminListen == "" {
		errs = append(errs, usagef("--pause-points needs --admin-listen, where parked requests are released"))
	}
	for _, err := range errs {
		if err != nil {
			return err // one line: the rest is told on the next try
		}
	}
	return nil
}

// serve opens what the service needs, serves until ctx ends, and closes all again.
func (o *serveOptions) serve(ctx context.Context, stderr io.Writer) (err error) {
	if err := o.validate(); err != nil {
		return err
	}
	log, err := o.logger(stderr)
	if err != nil {
		return err
	}
	log = log.With(slog.String("replica", o.replica))

	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	deps := stock.Deps{LockWait: o.lockWait, Lease: o.lease, Poll: o.poll, Log: log}
	if o.mysqlDSN != "" {
		config, err := parseDSN(o.mysqlDSN)
		if err != nil {
			return err
		}
		limitWaits(config, o.lockWait, o.requestTimeout)
		if deps.MySQL, err = openMySQL(config, o.mysqlConns, log); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, deps.MySQL.Close()) }()
		if deps.MySQLLocks, err = openMySQL(config, o.mysqlLockConns, log); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, deps.MySQLLocks.Close()) }()
		registry.MustRegister(collectors.NewDBStatsCollector(deps.MySQL.DB, "mysql"), collectors.NewDBStatsCollector(deps.MySQLLocks.DB, "mysql_locks"))
	}
	if len(o.redis) > 0 {
		deps.Redis = o.openRedis(o.master, o.redis...)
		defer func() { err = errors.Join(err, deps.Redis.Close()) }()
		exportPool(registry, "redis", strings.Join(o.redis, ","), deps.Redis)
	}
	for _, address := range o.redlock {
		master := o.openRedis("", address)
		deps.Redlock = append(deps.Redlock, master)
		exportPool(registry, "redlock", address, master)
	}
	defer func() { err = errors.Join(err, closeAll(deps.Redlock)) }()
	if len(o.etcd) > 0 {
		if deps.Etcd, err = o.openEtcd(); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, deps.Etcd.Close()) }()
	}
	if len(o.zookeeper) > 0 {
		if deps.ZooKeeper, err = o.openZooKeeper(o.lease, log); err != nil {
			return err
		}
		defer deps.ZooKeeper.Close()
	}

	service, err := stock.NewService(deps, stock.Catalogue)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, service.Close()) }()
	api, err := httpapi.New(httpapi.Config{
		Service:         service,
		DefaultStrategy: o.strategy,
		Replica:         o.replica,
		RequestTimeout:  o.requestTimeout,
		PausePoints:     o.pausePoints,
		Registry:        registry,
		Version:         buildVersion(),
		Log:             log,
	})
	if err != nil {
		return usagef("--default-strategy: %w", err)
	}
	if o.mysqlDSN == "" {
		log.Warn("no --mysql-dsn: the strategies that need MySQL are unavailable, and answer 503")
	}
	return o.serveHTTP(ctx, api, log)
}
