package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"stock/internal/stock/retention"
)

type pruneOptions struct {
	maintenance
	olderThan time.Duration
}

func newPrune(getenv func(string) string) *cobra.Command {
	o := pruneOptions{maintenance: maintenance{storeOptions: storeOptions{mysqlConns: 1}}}
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Delete old rows of the ledger, old reservations and old sales of redis-stream",
		Long: `Delete the rows of the ledger that are older than --older-than, 500 requests at a time, while the service keeps
running. Every sale of a strategy with a ledger adds a row per item, so run this regularly. A request that is sent again
with a deleted key is carried out again.

Also delete the reservations that were confirmed, cancelled or taken back and that expired, or would have expired,
before that time. Units that are held stay held.

With --redis, also delete the sales of redis-stream from the table stream_sale that reached MySQL before that time, and
at least one hour before the oldest entry in any stream. An entry whose sale was deleted would be deducted again, so do
not restore a copy of Redis's data that is older than --older-than. Replicas stop writing an entry to MySQL one minute
after they read it, even if they were suspended in between; this relies on the clock of their machine not being set back
by an hour or more.

Sales that could not be deducted are kept.

` + passwordHelp,
		Example: `  stock prune --older-than 720h --redis 127.0.0.1:6379 \
    --mysql-dsn 'root:secret@tcp(127.0.0.1:3306)/stock'`,
	}
	return o.command(cmd, getenv, o.prune, group("What to delete", func(f *pflag.FlagSet) {
		f.DurationVar(&o.olderThan, "older-than", 0,
			"`age` from which rows and sales are deleted: longer than clients try again; required")
	}))
}

func (o *pruneOptions) prune(ctx context.Context, stdout io.Writer) (err error) {
	if o.olderThan == 0 {
		return usagef("--older-than is missing: give an age, such as 720h")
	}
	if err := (limit{flag: "older-than", value: o.olderThan, least: time.Millisecond}).check(); err != nil {
		return err
	}
	servers, err := o.open(true)
	if err != nil {
		return err
	}
	defer servers.close(&err)
	for _, kind := range []struct {
		name, deleted string
		prune         func(context.Context, *sqlx.DB, time.Duration) (int64, error)
	}{
		{"ledger", "rows of the ledger", retention.PruneLedger},
		{"reservations", "reservations", retention.PruneReservations},
	} {
		deleted, err := kind.prune(ctx, servers.MySQL, o.olderThan)
		fmt.Fprintf(stdout, "deleted %d %s\n", deleted, kind.deleted)
		if err != nil {
			return fmt.Errorf("prune the %s of database %s at %s: %w",
				kind.name, servers.config.DBName, servers.config.Addr, err)
		}
	}
	if servers.Redis == nil {
		return nil
	}
	deleted, err := servers.Prune(ctx, o.olderThan)
	fmt.Fprintf(stdout, "deleted %d sales of redis-stream\n", deleted)
	if err != nil {
		return fmt.Errorf("prune the sales of redis-stream: %w", err)
	}
	return nil
}
