package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"stock/internal/stock"
)

type pruneOptions struct {
	storeOptions
	logOptions
	olderThan time.Duration
}

func newPrune(getenv func(string) string) *cobra.Command {
	o := pruneOptions{storeOptions: storeOptions{mysqlConns: 1, redisConns: 1}}
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Forget old orders, their idempotency keys, and old sales of redis-stream",
		Long: `Delete the orders from the ledger that are older than --older-than, a thousand at a time, while the service goes on. The
ledger grows by a row a line of an order until then: run it from time to time. An order that is sent again with a key that was
forgotten is carried out again.

With --redis, also delete the sales of redis-stream from stream_sale that came to MySQL longer ago than that, and than an
hour before the oldest entry in any stream: an entry that is still there would be deducted again. So would be the entries of a
copy of Redis's data that is older than --older-than. Not so those that a replica has read and could not write: a minute after
it has read them it does not write them any more, also if it was suspended meanwhile. It looks at its machine's clock for that,
which must not be set back by as much as an hour.

Sales that were not deducted are kept. Goods without a sale on its way leave the index of streams. STOCK_REDIS_PASSWORD is the
password of Redis.`,
		Example: "  stock prune --older-than 720h --mysql-dsn 'root:secret@tcp(127.0.0.1:3306)/stock' --redis 127.0.0.1:6379",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.password = getenv("STOCK_REDIS_PASSWORD")
			return o.prune(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	setFlags(cmd, getenv,
		group("Servers", func(f *pflag.FlagSet) {
			o.dsnFlag(f)
			o.redisFlag(f)
		}),
		group("What to forget", func(f *pflag.FlagSet) {
			f.DurationVar(&o.olderThan, "older-than", 0, "`age` of the youngest order or sale to forget, beyond the time for which clients try again; it must be given")
		}),
		o.logOptions.group(),
	)
	return cmd
}

func (o *pruneOptions) prune(ctx context.Context, stdout, stderr io.Writer) (err error) {
	log, err := o.logger(stderr)
	if err != nil {
		return err
	}
	if o.mysqlDSN == "" {
		return usagef("--mysql-dsn is missing: which database is to be pruned?")
	}
	if err := checkPositive("older-than", o.olderThan); err != nil {
		return err
	}
	config, err := parseDSN(o.mysqlDSN)
	if err != nil {
		return err
	}
	limitCommand(config)
	if err := o.checkRedis(); err != nil {
		return err
	}
	db, err := openMySQL(config, o.mysqlConns, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()

	deleted, err := stock.PruneLedger(ctx, db, o.olderThan)
	fmt.Fprintf(stdout, "deleted %d rows of the ledger\n", deleted)
	if err != nil {
		return fmt.Errorf("prune the ledger of database %s at %s: %w", config.DBName, config.Addr, err)
	}
	if len(o.redis) == 0 {
		return nil
	}
	return o.pruneStream(ctx, db, stdout)
}

func (o *pruneOptions) pruneStream(ctx context.Context, db *sqlx.DB, stdout io.Writer) (err error) {
	client := o.openRedis(o.master, o.redis...)
	defer func() { err = errors.Join(err, client.Close()) }()
	service, err := stock.NewService(stock.Deps{MySQL: db, MySQLLocks: db, Redis: client}, nil)
	if err != nil {
		return err
	}
	deleted, err := service.PruneStream(ctx, o.olderThan)
	fmt.Fprintf(stdout, "deleted %d sales of redis-stream\n", deleted)
	if err != nil {
		return fmt.Errorf("prune the sales of redis-stream: %w", err)
	}
	return nil
}
