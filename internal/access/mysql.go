package access

import (
	"cmp"
	"crypto/tls"
	"errors"
	"strings"

	"github.com/go-sql-driver/mysql"
)

// MySQL returns the configuration of a connection: that of a DSN, with a password and settings of TLS from elsewhere,
// if any. Its errors continue a sentence that begins with the name of the DSN. They are not the driver's, which quote
// the address, the protocol and the database, one of which may be a misplaced password.
func MySQL(dsn, password string, secure *tls.Config) (*mysql.Config, error) {
	config, err := mysql.ParseDSN(dsn)
	switch {
	case err != nil && strings.HasPrefix(err.Error(), "invalid value / unknown config name: "):
		return nil, errors.New("has an unknown value for tls: it must be true, false, skip-verify or preferred")
	case err != nil || !reachable(config):
		return nil, errors.New("is malformed: it must be like user:password@tcp(127.0.0.1:3306)/database " +
			"or user:password@unix(/path/of/the/socket)/database")
	case password != "" && config.Passwd != "":
		return nil, errors.New("has a password, and so has STOCK_MYSQL_PASSWORD (of the lab, LOADTEST_MYSQL_PASSWORD): " +
			"remove one of them")
	case secure != nil && config.TLSConfig != "":
		return nil, errors.New("has a parameter tls, and there is --mysql-tls: remove one of them")
	case secure != nil && config.AllowFallbackToPlaintext:
		return nil, errors.New("has allowFallbackToPlaintext, and there is --mysql-tls, which never falls back: " +
			"remove one of them")
	case secure != nil && config.Net == "unix":
		return nil, errors.New("names a socket, and there is --mysql-tls: a socket needs no TLS, remove one of them")
	}
	config.Passwd = cmp.Or(config.Passwd, password)
	if secure != nil {
		config.TLS = secure.Clone()
	}
	return config, nil
}

// reachable reports whether a DSN names a server in a form that cannot contain a password.
func reachable(config *mysql.Config) bool {
	return config.Net == "unix" || config.Net == "tcp" && IsHostPort(config.Addr)
}
