package oracle

import (
	"cmp"
	"crypto/tls"
	"errors"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"
)

// Account is what the servers ask of their clients. The zero value is no more than the DSN has.
type Account struct {
	MySQLPassword            string // instead of one in the DSN
	MySQLTLS, RedisTLS       *tls.Config
	RedisUser, RedisPassword string // of every Redis server; the default user if empty
}

// MySQLConfig returns the configuration of a connection to MySQL. It does not return the driver's error, which may
// quote a misplaced password.
func (a Account) MySQLConfig(dsn string) (*mysql.Config, error) {
	parsed, err := mysql.ParseDSN(dsn)
	switch {
	case err != nil:
		return nil, errors.New("the MySQL DSN is malformed: it must be like user:password@tcp(host:port)/database, " +
			"and end with the / if the lab is to create the database")
	case a.MySQLPassword != "" && parsed.Passwd != "":
		return nil, errors.New("the MySQL DSN has a password, and there is another one: remove one of them")
	case a.MySQLTLS != nil && parsed.TLSConfig != "":
		return nil, errors.New("the MySQL DSN has a parameter tls, and there are other settings of TLS: remove one of them")
	case a.MySQLTLS != nil && parsed.AllowFallbackToPlaintext:
		return nil, errors.New("the MySQL DSN has allowFallbackToPlaintext, and there are settings of TLS, with which " +
			"nothing falls back: remove one of them")
	}
	parsed.Passwd = cmp.Or(parsed.Passwd, a.MySQLPassword)
	if a.MySQLTLS != nil {
		parsed.TLS = a.MySQLTLS.Clone()
	}
	return parsed, nil
}

// RedisOptions returns the options of a client of one server, or of a Cluster if there are several addresses.
func (a Account) RedisOptions(addresses ...string) *redis.UniversalOptions {
	return &redis.UniversalOptions{
		Addrs: addresses, Username: a.RedisUser, Password: a.RedisPassword, TLSConfig: a.RedisTLS,
	}
}
