package oracle

import (
	"crypto/tls"
	"fmt"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"stock/internal/access"
)

// Account is what the servers ask of their clients. The zero value is no more than the DSN has.
type Account struct {
	MySQLPassword            string // instead of one in the DSN
	MySQLTLS, RedisTLS       *tls.Config
	RedisUser, RedisPassword string // of every Redis server; the default user if empty
}

// MySQLConfig returns the configuration of a connection to MySQL.
func (a Account) MySQLConfig(dsn string) (*mysql.Config, error) {
	config, err := access.MySQL(dsn, a.MySQLPassword, a.MySQLTLS)
	if err != nil {
		return nil, fmt.Errorf("the MySQL DSN %w", err)
	}
	return config, nil
}

// RedisOptions returns the options of a client of one server, or of a Cluster if there are several addresses.
func (a Account) RedisOptions(addresses ...string) *redis.UniversalOptions {
	return &redis.UniversalOptions{
		Addrs: addresses, Username: a.RedisUser, Password: a.RedisPassword, TLSConfig: a.RedisTLS,
	}
}
