package main

import (
	"crypto/tls"
	"strings"

	"github.com/spf13/pflag"

	"stock/internal/access"
)

// passwordHelp is for the commands that open MySQL and Redis. Other users of the host can read a command line, so no
// flag takes a password.
const passwordHelp = `The passwords of MySQL and Redis are read from STOCK_MYSQL_PASSWORD (unless the DSN has one) and
STOCK_REDIS_PASSWORD, that of Sentinels from STOCK_REDIS_SENTINEL_PASSWORD; or from the files that these variables with
_FILE at the end name.`

// account is how servers of one kind let the service in.
type account struct {
	name     string // in --NAME-tls, --NAME-user and STOCK_NAME_PASSWORD; empty if the command has no such servers
	settings string // see access.TLS
	user     string
	password string
	tls      *tls.Config // nil without TLS
}

// accounts are those of all servers.
type accounts struct{ mysql, redis, sentinel, etcd, zookeeper account }

// flags defines --NAME-tls and --NAME-user. A flag without a usage is not defined.
func (a *account) flags(f *pflag.FlagSet, name, tlsUsage, userUsage string) {
	a.name = name
	if tlsUsage != "" {
		f.StringVar(&a.settings, name+"-tls", "", tlsUsage)
	}
	if userUsage != "" {
		f.StringVar(&a.user, name+"-user", "", userUsage)
	}
}

// read reads the password and the certificates. MySQL has its user in the DSN, and Redis has a default user.
func (a *account) read(getenv func(string) string) (err error) {
	variable := "STOCK_" + strings.ToUpper(strings.ReplaceAll(a.name, "-", "_")) + "_PASSWORD"
	if a.password, err = access.Password(getenv, variable); err != nil {
		return exitError{err, exitMisused}
	}
	if a.tls, err = access.TLS(a.settings); err != nil {
		return usagef("--%s-tls: %w", a.name, err)
	}
	switch {
	case a.user != "" && a.password == "":
		return usagef("--%s-user needs a password: set %s, or %[2]s_FILE", a.name, variable)
	case a.user == "" && a.password != "" && (a.name == "etcd" || a.name == "zookeeper"):
		return usagef("%s needs --%s-user", variable, a.name)
	}
	return nil
}

func (a *accounts) read(getenv func(string) string) error {
	for _, account := range []*account{&a.mysql, &a.redis, &a.sentinel, &a.etcd, &a.zookeeper} {
		if account.name == "" {
			continue
		}
		if err := account.read(getenv); err != nil {
			return err
		}
	}
	return nil
}
