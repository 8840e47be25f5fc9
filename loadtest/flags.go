package main

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"stock/internal/access"
	"stock/loadtest/internal/fault"
	"stock/loadtest/internal/lab"
	"stock/loadtest/internal/load"
	"stock/loadtest/internal/oracle"
	"stock/loadtest/internal/topology"
)

// Flags that several commands share.

// newSeed returns a random seed that is not 0. It has 32 bits, so that it is short enough to retype.
func newSeed() uint64 { return uint64(rand.Uint32()) + 1 }

// registerService registers the flag --service.
func registerService(flags *pflag.FlagSet, file *string) {
	flags.StringVar(file, "service", "", "`file` that describes a service of yours, in YAML: docs/your-service.md")
}

// checkReplicas returns an error for a number of replicas that the lab does not start.
func checkReplicas(n int) error {
	if n < 1 || n > load.MaxReplicas {
		return fmt.Errorf("--replicas %d: must be a number from 1 to %d", n, load.MaxReplicas)
	}
	return nil
}

// localFlags configure servers that the lab starts itself.
type localFlags struct {
	stockBinary string
	tidb        string
}

func (f *localFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.stockBinary, "stock-binary", "",
		"path of the service (default: the stock program built together with this one, else built from source)")
}

// registerTiDB registers the flag --tidb.
func (f *localFlags) registerTiDB(flags *pflag.FlagSet) {
	flags.StringVar(&f.tidb, "tidb", "", `run this tidb-server instead of MySQL ("make tidb" builds bin/tidb-server)`)
}

// clusterFlags say whether the lab's own Redis and etcd are clusters.
type clusterFlags struct {
	redis bool
	etcd  int // members
}

func (f *clusterFlags) register(flags *pflag.FlagSet) {
	flags.BoolVar(&f.redis, "redis-cluster", false,
		"the lab's Redis is a Cluster of three masters, each with a Redis replica")
	flags.IntVar(&f.etcd, "etcd-members", 1, "members of the lab's etcd: 1 or 3")
}

func (f *clusterFlags) check() error {
	if f.etcd != 1 && f.etcd != 3 {
		return fmt.Errorf("--etcd-members %d: must be 1 or 3", f.etcd)
	}
	return nil
}

// given reports whether any is a cluster.
func (f *clusterFlags) given() bool { return f.redis || f.etcd != 1 }

// options returns the options of the topology with the clusters that the flags ask for.
func (f *clusterFlags) options(o topology.Options) topology.Options {
	o.RedisCluster, o.EtcdMembers = f.redis, f.etcd
	return o
}

// serverFlags describe servers of the user's: those of a running service, or others on which the lab has a database and
// keys of its own.
type serverFlags struct {
	mysqlDSN           string
	redis              []string
	mysqlTLS, redisTLS string // see access.TLS
	account            oracle.Account
}

func (f *serverFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.mysqlDSN, "mysql-dsn", "",
		"user:password@tcp(host:port)/ of a MySQL of yours: the lab creates a database on it and drops it at the end; "+
			"password in LOADTEST_MYSQL_PASSWORD, or in the DSN if that is in LOADTEST_MYSQL_DSN")
	flags.StringSliceVar(&f.redis, "redis", nil,
		"host:port of a Redis of yours, several of a Cluster: the lab uses keys with a prefix of its own, and deletes them "+
			"at the end; password in LOADTEST_REDIS_PASSWORD or STOCK_REDIS_PASSWORD")
	flags.StringVar(&f.mysqlTLS, "mysql-tls", "", access.Usage)
	flags.StringVar(&f.redisTLS, "redis-tls", "", access.Usage)
	flags.StringVar(&f.account.RedisUser, "redis-user", "", "`user` of Redis, if not the default user")
}

// readAccount reads certificates, and passwords from the environment or from files: other users of the host can read a
// command line.
func (f *serverFlags) readAccount(getenv func(string) string) (err error) {
	if f.account.MySQLTLS, err = access.TLS(f.mysqlTLS); err != nil {
		return fmt.Errorf("--mysql-tls: %w", err)
	}
	if f.account.RedisTLS, err = access.TLS(f.redisTLS); err != nil {
		return fmt.Errorf("--redis-tls: %w", err)
	}
	if f.account.MySQLPassword, err = access.Password(getenv, "LOADTEST_MYSQL_PASSWORD"); err != nil {
		return err
	}
	for _, name := range []string{"LOADTEST_REDIS_PASSWORD", "STOCK_REDIS_PASSWORD"} {
		if f.account.RedisPassword, err = access.Password(getenv, name); err != nil {
			return err
		}
		if f.account.RedisPassword != "" {
			break
		}
	}
	if f.account.RedisUser != "" && f.account.RedisPassword == "" {
		return errors.New("--redis-user needs a password: set LOADTEST_REDIS_PASSWORD, or LOADTEST_REDIS_PASSWORD_FILE")
	}
	return nil
}

// checkServers accepts a list of different addresses.
func checkServers(flag string, addresses []string) error {
	if err := access.CheckServers(addresses); err != nil {
		return fmt.Errorf("--%s %w", flag, err)
	}
	return nil
}

// checkOwn returns an error for flags that cannot work if the lab starts the service itself, perhaps on TiDB or on
// a Redis Cluster of its own.
func (f *serverFlags) checkOwn(tidb string, redisCluster bool) error {
	if err := checkServers("redis", f.redis); err != nil {
		return err
	}
	switch {
	case redisCluster && len(f.redis) > 0:
		return errors.New("--redis-cluster and --redis exclude each other: the Cluster is the lab's own")
	case tidb != "" && f.mysqlDSN != "":
		return errors.New("--tidb and --mysql-dsn exclude each other: --tidb starts a server of the lab's own")
	case f.mysqlTLS != "" && f.mysqlDSN == "":
		return errors.New("--mysql-tls needs --mysql-dsn: the lab connects to a MySQL of its own without TLS")
	case len(f.redis) == 0 && (f.redisTLS != "" || f.account.RedisUser != ""):
		return errors.New("--redis-tls and --redis-user need --redis: the lab connects to a Redis of its own without TLS, " +
			"and as the default user")
	}
	return nil
}

// userServers says which servers are the user's, if the lab starts the service itself.
func (f *serverFlags) userServers(replicas int) topology.UserServers {
	return topology.UserServers{
		MySQLDSN: f.mysqlDSN, Redis: f.redis, Account: f.account, MySQLTLS: f.mysqlTLS, RedisTLS: f.redisTLS,
		Replicas: replicas,
	}
}

// noFaults is why no fault scenario can be played on the servers; empty if some can.
func (f *serverFlags) noFaults() string {
	switch {
	case f.userServers(0).TLS():
		return fault.NoTLS
	case len(f.redis) > 1:
		return fault.NoCluster
	}
	return ""
}

// warnOfServers says what the claims rely on and the user's servers do not have.
func warnOfServers(w io.Writer, l *lab.Lab) {
	for _, warning := range l.Warnings {
		fmt.Fprintln(w, "warning:", warning)
	}
}

// attachFlags describe a service that is already running.
type attachFlags struct {
	serverFlags
	target, single, admin, keyPrefix string
}

func (f *attachFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.target, "target", "", "URL of a running service: the lab then starts no servers")
	flags.StringVar(&f.single, "single", "", "with --target: URL that reaches only one replica")
	flags.StringVar(&f.admin, "admin", "", "with --target: URL of a replica's admin listener, to set the stock")
	f.serverFlags.register(flags)
	for _, name := range []string{"mysql-dsn", "redis"} {
		flags.Lookup(name).Usage += ". With --target: the service's, its database included, to read the stock directly"
	}
	flags.StringVar(&f.keyPrefix, "key-prefix", "", "with --target: the service's --key-prefix")
}

// given reports whether a flag was given that only a running service has.
func (f *attachFlags) given() bool { return f.single != "" || f.admin != "" || f.keyPrefix != "" }

func (f *attachFlags) place() lab.Place {
	p := lab.Place{
		URL: f.target, Admin: f.admin, MySQLDSN: f.mysqlDSN, Redis: f.redis, Account: f.account, KeyPrefix: f.keyPrefix,
	}
	if f.single != "" {
		p.Fewer = map[int]string{1: strings.TrimSuffix(f.single, "/")}
	}
	return p
}

// noArguments is cobra.NoArgs in other words, because "extra" is not the name of a command here.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes no arguments, and got %q; see %[1]s --help", cmd.CommandPath(), args[0])
	}
	return nil
}

// flagError is an error of pflag without the words of strconv.
func flagError(err error) error {
	invalid, ofValue := errors.AsType[*pflag.InvalidValueError](err)
	number, ofNumber := errors.AsType[*strconv.NumError](err)
	if !ofValue || !ofNumber {
		return err
	}
	want := "must be a whole number"
	switch {
	case errors.Is(number, strconv.ErrRange):
		want = "is out of range"
	case number.Func == "ParseBool":
		want = "must be true or false"
	case number.Func == "ParseFloat":
		want = "must be a number"
	case number.Func == "ParseUint":
		want = "must be a whole number, 0 or more"
	}
	return fmt.Errorf("--%s %q: %s", invalid.GetFlag().Name, invalid.GetValue(), want)
}
