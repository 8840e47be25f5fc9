package main

import (
	"crypto/tls"

	"github.com/spf13/pflag"

	"stock/internal/access"
)

// accountOptions are what the servers ask of their clients: TLS, users and passwords.
type accountOptions struct {
	mysqlTLS, redisTLS, etcdTLS, zookeeperTLS             string // see access.TLS
	redisUser, sentinelUser, etcdUser, zookeeperUser      string
	mysqlPassword, redisPassword, sentinelPassword        string
	etcdPassword, zookeeperPassword                       string
	mysqlConfig, redisConfig, etcdConfig, zookeeperConfig *tls.Config // nil without TLS
}

// passwordHelp is for the commands that open MySQL and Redis. Other users of the host can read a command line, so no
// flag takes a password.
const passwordHelp = `The passwords of MySQL and Redis are read from STOCK_MYSQL_PASSWORD (unless the DSN has one) and
STOCK_REDIS_PASSWORD, that of Sentinels from STOCK_REDIS_SENTINEL_PASSWORD; or from the files that these variables with
_FILE at the end name.`

func (o *accountOptions) mysqlFlags(f *pflag.FlagSet) {
	f.StringVar(&o.mysqlTLS, "mysql-tls", "", access.Usage)
}

func (o *accountOptions) redisFlags(f *pflag.FlagSet) {
	f.StringVar(&o.redisTLS, "redis-tls", "", access.Usage+"; for every Redis server and Sentinel")
	f.StringVar(&o.redisUser, "redis-user", "", "`user` of every Redis server, if not the default user")
	f.StringVar(&o.sentinelUser, "redis-sentinel-user", "", "`user` of the Sentinels, if not the default user")
}

func (o *accountOptions) etcdFlags(f *pflag.FlagSet) {
	f.StringVar(&o.etcdTLS, "etcd-tls", "", access.Usage)
	f.StringVar(&o.etcdUser, "etcd-user", "",
		"`user` of etcd; if empty, etcd knows the user by the certificate, or has none")
}

func (o *accountOptions) zookeeperFlags(f *pflag.FlagSet) {
	f.StringVar(&o.zookeeperTLS, "zookeeper-tls", "", access.Usage)
	f.StringVar(&o.zookeeperUser, "zookeeper-user", "",
		"`user` of ZooKeeper (digest), to whom the nodes of the locks then belong; open to everybody if empty")
}

// readPasswords reads the passwords from the environment and from files.
func (o *accountOptions) readPasswords(getenv func(string) string) (err error) {
	for _, p := range []struct {
		name   string
		target *string
	}{
		{"STOCK_MYSQL_PASSWORD", &o.mysqlPassword},
		{"STOCK_REDIS_PASSWORD", &o.redisPassword},
		{"STOCK_REDIS_SENTINEL_PASSWORD", &o.sentinelPassword},
		{"STOCK_ETCD_PASSWORD", &o.etcdPassword},
		{"STOCK_ZOOKEEPER_PASSWORD", &o.zookeeperPassword},
	} {
		if *p.target, err = access.Password(getenv, p.name); err != nil {
			return usageError{err}
		}
	}
	return nil
}

// readTLS reads the certificates.
func (o *accountOptions) readTLS() (err error) {
	for _, s := range []struct {
		flag, settings string
		target         **tls.Config
	}{
		{"mysql-tls", o.mysqlTLS, &o.mysqlConfig},
		{"redis-tls", o.redisTLS, &o.redisConfig},
		{"etcd-tls", o.etcdTLS, &o.etcdConfig},
		{"zookeeper-tls", o.zookeeperTLS, &o.zookeeperConfig},
	} {
		if *s.target, err = access.TLS(s.settings); err != nil {
			return usagef("--%s: %w", s.flag, err)
		}
	}
	return nil
}

// checkAccounts returns an error for users without a password.
func (o *accountOptions) checkAccounts() error {
	for _, account := range []struct{ flag, user, variable, password string }{
		{"redis-user", o.redisUser, "STOCK_REDIS_PASSWORD", o.redisPassword},
		{"redis-sentinel-user", o.sentinelUser, "STOCK_REDIS_SENTINEL_PASSWORD", o.sentinelPassword},
		{"etcd-user", o.etcdUser, "STOCK_ETCD_PASSWORD", o.etcdPassword},
		{"zookeeper-user", o.zookeeperUser, "STOCK_ZOOKEEPER_PASSWORD", o.zookeeperPassword},
	} {
		if account.user != "" && account.password == "" {
			return usagef("--%s needs a password: set %s, or %[2]s_FILE", account.flag, account.variable)
		}
	}
	return nil
}

// checkUsers returns an error for passwords without a user. Only serve has the flags for these users.
func (o *accountOptions) checkUsers() error {
	if o.etcdPassword != "" && o.etcdUser == "" {
		return usagef("STOCK_ETCD_PASSWORD needs --etcd-user")
	}
	if o.zookeeperPassword != "" && o.zookeeperUser == "" {
		return usagef("STOCK_ZOOKEEPER_PASSWORD needs --zookeeper-user")
	}
	return nil
}
