package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/go-sql-driver/mysql"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"stock/internal/stock"
	"stock/migrations"
)

type migrateOptions struct {
	storeOptions
	logOptions
}

func newMigrate(getenv func(string) string) *cobra.Command {
	o := migrateOptions{storeOptions: storeOptions{mysqlConns: 4, redisConns: 1}}
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Bring the database's schema up to date and put the first goods there",
		Long: fmt.Sprintf(`Bring the database's schema up to date, and put %d units of goods %d there to try the service with. The database must
exist. Any number of replicas may do this at the same time: one migrates, the others wait for it.

With --redis, Redis gets what MySQL has of that goods, where it has none. STOCK_REDIS_PASSWORD is its password.`,
			migrations.FirstStock, migrations.FirstGoods),
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.password = getenv("STOCK_REDIS_PASSWORD")
			return o.migrate(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	setFlags(cmd, getenv,
		group("Servers", func(f *pflag.FlagSet) {
			o.dsnFlag(f)
			o.redisFlag(f)
		}),
		o.logOptions.group(),
	)
	return cmd
}

func (o *migrateOptions) migrate(ctx context.Context, stdout, stderr io.Writer) (err error) {
	log, err := o.logger(stderr)
	if err != nil {
		return err
	}
	if o.mysqlDSN == "" {
		return usagef("--mysql-dsn is missing: which database is to be migrated?")
	}
	config, err := parseDSN(o.mysqlDSN)
	if err != nil {
		return err
	}
	if err := o.checkRedis(); err != nil {
		return err
	}
	db, err := openMySQL(config, o.mysqlConns, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()

	applied, err := migrations.Up(ctx, db.DB)
	if err != nil {
		return fmt.Errorf("migrate database %s at %s: %w", config.DBName, config.Addr, err)
	}
	for _, name := range applied {
		fmt.Fprintf(stdout, "applied %s\n", name)
	}
	fmt.Fprintf(stdout, "database %s is up to date\n", config.DBName)
	if len(o.redis) == 0 {
		return nil
	}
	return o.firstGoodsInRedis(ctx, config, log, stdout)
}

// firstGoodsInRedis gives Redis what MySQL still has, and not what it had once: that may be sold. Unlike a migration, it must
// not wait long for a locked row.
func (o *migrateOptions) firstGoodsInRedis(ctx context.Context, config *mysql.Config, log *slog.Logger, stdout io.Writer) (err error) {
	config = config.Clone()
	limitCommand(config)
	db, err := openMySQL(config, 1, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	client := o.openRedis(o.master, o.redis...)
	defer func() { err = errors.Join(err, client.Close()) }()
	service, err := stock.NewService(stock.Deps{MySQL: db, MySQLLocks: db, Redis: client}, nil)
	if err != nil {
		return err
	}
	b, err := service.FillRedis(ctx, migrations.FirstGoods)
	switch {
	case errors.Is(err, stock.ErrUnknownGoods):
		return nil // somebody has deleted it
	case err != nil:
		return fmt.Errorf("put the first goods into Redis: %w", err)
	case b.Finding == stock.Agree, b.Mended:
		fmt.Fprintf(stdout, "Redis has goods %d\n", migrations.FirstGoods)
	default:
		fmt.Fprintf(stdout, "goods %d was left as it is: %s; see stock reconcile --help\n", migrations.FirstGoods, b.Finding)
	}
	return nil
}
