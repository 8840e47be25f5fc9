package lab

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"stock/loadtest/internal/load"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/service"
	"stock/loadtest/internal/topology"
)

// StartService starts a service of the user's on a private MySQL or PostgreSQL and a private Redis, or connects to one
// that is running, whose stores are in the Place. It returns an error if the service does not do what is said about it.
func StartService(ctx context.Context, d *service.Description, replicas int, at Place) (*Lab, error) {
	l := &Lab{}
	own := &service.Running{Description: d, URLs: d.URL}
	postgres := d.Database
	if d.OnPostgres() {
		at.MySQLDSN = ""
	}
	if len(d.Command) > 0 {
		t, err := topology.StartOwn(ctx, d, replicas)
		if err != nil {
			return nil, err
		}
		l.Topology, at.MySQLDSN, at.Redis, at.Account = t, t.MySQLDSN, t.Redis, t.Account
		postgres = t.PostgresURL
		for _, r := range t.Replicas {
			own.URLs = append(own.URLs, r.URL)
		}
	}
	l.Target.Own = own
	at.URL = own.URLs[0]
	err := l.connectService(ctx, at)
	if err == nil && d.OnPostgres() {
		err = l.connectPostgres(ctx, postgres)
	}
	if err == nil {
		err = load.TrySale(ctx, own, 1, trialTimeout)
	}
	if err != nil {
		return nil, errors.Join(l.withLog(err), l.Close())
	}
	return l, nil
}

// trialTimeout is that of a single request to a service that is not busy.
const trialTimeout = 10 * time.Second

// connectService connects to the stores of a service of the user's.
func (l *Lab) connectService(ctx context.Context, at Place) error {
	own := l.Target.Own
	switch {
	case own.Stock.SQL != nil && at.MySQLDSN == "" && !own.OnPostgres():
		return errors.New("the stock is in MySQL (stock.sql): give --mysql-dsn, or LOADTEST_MYSQL_DSN, with the database " +
			"of your service")
	case own.Stock.Redis != nil && len(at.Redis) == 0:
		return errors.New("the stock is in Redis (stock.redis): give --redis, or LOADTEST_REDIS")
	}
	if _, err := l.connect(ctx, at); err != nil {
		return err
	}
	if at.MySQLDSN != "" {
		config, err := at.MySQLConfig(at.MySQLDSN)
		if err != nil {
			return err
		}
		config.MultiStatements = true // stock.set may need several
		connector, err := mysql.NewConnector(config)
		if err != nil {
			return err
		}
		own.DB = sql.OpenDB(connector)
	}
	if len(at.Redis) > 0 {
		own.Redis = redis.NewUniversalClient(at.RedisOptions(at.Redis...))
	}
	l.notes = append(l.notes, own.NotJudged(len(own.URLs))...)
	return nil
}

// connectPostgres connects to the database of a service on PostgreSQL.
func (l *Lab) connectPostgres(ctx context.Context, address string) (err error) {
	if l.Target.Own.DB, err = service.OpenPostgres(address, ""); err != nil {
		return fmt.Errorf("database: %w", err)
	}
	version := report.Server{Name: service.Postgres}
	if err := l.Target.Own.DB.QueryRowContext(ctx, "SHOW server_version").Scan(&version.Version); err != nil {
		return fmt.Errorf("ask PostgreSQL for its version: %w", err)
	}
	l.servers = append(l.servers, version)
	return nil
}

// withLog returns an error of a service that the lab has started, with the end of its log: it may say why.
func (l *Lab) withLog(err error) error {
	if l.Topology == nil {
		return err
	}
	for _, r := range l.Topology.Replicas {
		if log := r.Process().Tail(10); log != "" {
			return fmt.Errorf("%w; the log of your service ends with:\n%s", err, log)
		}
	}
	return err
}
