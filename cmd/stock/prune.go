package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

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
	o := pruneOptions{storeOptions: storeOptions{mysqlConns: 1}}
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Forget old orders, and their idempotency keys",
		Long: `Delete the orders from the ledger that are older than --older-than, a thousand at a time, while the service goes on. The
ledger grows by a row an order until then: run it from time to time. An order that is sent again with a key that was
forgotten is carried out again.`,
		Example: "  stock prune --older-than 720h --mysql-dsn 'root:secret@tcp(127.0.0.1:3306)/stock'",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.prune(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	setFlags(cmd, getenv,
		group("Ledger", func(f *pflag.FlagSet) {
			o.dsnFlag(f)
			f.DurationVar(&o.olderThan, "older-than", 0, "`age` of the youngest order to forget, beyond the time for which clients try again; it must be given")
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
	return nil
}
