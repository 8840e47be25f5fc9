package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"stock/internal/stock"
	"stock/internal/stock/stream"
	"stock/migrations"
)

type migrateOptions struct{ maintenance }

func newMigrate(getenv func(string) string) *cobra.Command {
	o := migrateOptions{maintenance{storeOptions: storeOptions{mysqlConns: 4}}}
	return o.command(&cobra.Command{
		Use:   "migrate",
		Short: "Create or update the database schema and add a first item",
		Long: fmt.Sprintf(`Create or update the database schema, and add item %d with %d units to try the service with. The
database must exist. Any number of replicas may run this at the same time: one migrates, the others wait for it.

With --redis, the stock of that item is copied from MySQL to Redis if Redis has none.

`+passwordHelp,
			migrations.FirstGoods, migrations.FirstStock),
	}, getenv, o.migrate)
}

func (o *migrateOptions) migrate(ctx context.Context, stdout io.Writer) (err error) {
	servers, err := o.open(false) // a migration may take long
	if err != nil {
		return err
	}
	defer servers.close(&err)
	applied, err := migrations.Up(ctx, servers.MySQL.DB)
	if err != nil {
		return fmt.Errorf("migrate database %s at %s: %w", servers.config.DBName, servers.config.Addr, err)
	}
	for _, name := range applied {
		fmt.Fprintf(stdout, "applied %s\n", name)
	}
	fmt.Fprintf(stdout, "database %s is up to date\n", servers.config.DBName)
	if servers.Redis == nil {
		return nil
	}
	return o.fillRedis(ctx, stdout)
}

// fillRedis copies the stock of the first item to Redis: what MySQL has now, because units may have been sold since the
// migration.
func (o *migrateOptions) fillRedis(ctx context.Context, stdout io.Writer) (err error) {
	servers, err := o.open(true) // again, with limited waits: a locked row must fail the command within seconds
	if err != nil {
		return err
	}
	defer servers.close(&err)
	b, err := servers.FillRedis(ctx, migrations.FirstGoods)
	switch {
	case errors.Is(err, stock.ErrUnknownItem):
		return nil // it was deleted
	case err != nil:
		return fmt.Errorf("copy the stock of item %d to Redis: %w", migrations.FirstGoods, err)
	case b.Finding == stream.Agree, b.Mended:
		fmt.Fprintf(stdout, "Redis has item %d\n", migrations.FirstGoods)
	default:
		fmt.Fprintf(stdout, "item %d in Redis was left as it is: %s; see stock reconcile --help\n",
			migrations.FirstGoods, b.Finding)
	}
	return nil
}
