package topology

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"stock/internal/servers"
	"stock/loadtest/internal/service"
)

// New returns a topology in which nothing is started yet.
func New() (*Topology, error) {
	dir, err := servers.NewDir("lab")
	return &Topology{dir: dir}, err
}

// StartOwn starts replicas of a service of the user's, with a MySQL or a PostgreSQL, and a Redis for them. If it fails,
// or if this process dies, nothing remains.
func StartOwn(ctx context.Context, d *service.Description, replicas int) (*Topology, error) {
	t, err := New()
	if err != nil {
		return nil, err
	}
	if err := t.startOwn(ctx, d, replicas); err != nil {
		return nil, errors.Join(err, t.Stop(ctx))
	}
	return t, nil
}

func (t *Topology) startOwn(ctx context.Context, d *service.Description, replicas int) error {
	group, starting := errgroup.WithContext(ctx)
	group.Go(func() error {
		if d.OnPostgres() {
			return t.startPostgres(starting)
		}
		return t.startMySQL(starting, Options{Replicas: replicas})
	})
	group.Go(func() error { return t.startRedis(starting, Options{}) })
	if err := group.Wait(); err != nil {
		return err
	}
	t.describeServers()
	if err := setUp(ctx, t.Addresses(), d); err != nil {
		return err
	}
	for i := range replicas {
		r, err := t.StartCommand(ctx, fmt.Sprintf("replica-%d", i+1), d.Command, d.Dir, t.Addresses())
		if r != nil {
			t.Replicas = append(t.Replicas, r)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *Topology) startPostgres(ctx context.Context) (err error) {
	if t.Servers.Postgres, err = servers.StartPostgres(ctx, servers.PostgresOptions{}); err == nil {
		t.PostgresURL, err = t.Servers.Postgres.CreateDatabase(ctx, database)
	}
	return err
}

func setUp(ctx context.Context, at Addresses, d *service.Description) error {
	env, err := at.Environment()
	if err != nil {
		return err
	}
	var db *sql.DB
	if at.PostgresURL != "" {
		db, err = service.OpenPostgres(at.PostgresURL, "")
	} else {
		db, err = sql.Open("mysql", at.MySQLDSN)
	}
	if err != nil {
		return err
	}
	defer db.Close()
	return d.SetUp(ctx, db, env)
}
