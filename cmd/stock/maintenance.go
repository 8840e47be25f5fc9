package main

import (
	"context"
	"errors"
	"io"

	"github.com/go-sql-driver/mysql"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"stock/internal/stock/stream"
)

// maintenance is what the commands migrate, prune and reconcile have in common.
type maintenance struct {
	storeOptions
}

// command completes cmd with the common flags, the given ones, and run.
func (o *maintenance) command(cmd *cobra.Command, getenv func(string) string,
	run func(ctx context.Context, stdout io.Writer) error, groups ...flagGroup,
) *cobra.Command {
	cmd.Args = noArguments
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := o.accounts.read(getenv); err != nil {
			return err
		}
		return run(cmd.Context(), cmd.OutOrStdout())
	}
	all := []flagGroup{group("Servers", func(f *pflag.FlagSet) {
		o.dsnFlag(f)
		o.redisFlag(f)
	})}
	all = append(all, groups...)
	setFlags(cmd, getenv, all...)
	return cmd
}

// databases are the servers of a maintenance command, and what maintains redis-stream there.
type databases struct {
	config       *mysql.Config
	stream.Admin // without Redis if there is no --redis
}

// open checks the flags and opens the servers. With limited waits, a locked row or a stopped server fails the command
// within seconds.
func (o *maintenance) open(limited bool) (*databases, error) {
	if o.mysqlDSN == "" {
		return nil, usagef("--mysql-dsn is missing, and so is STOCK_MYSQL_DSN")
	}
	if err := o.checkStores(); err != nil {
		return nil, err
	}
	config, err := o.mysqlConfig()
	if err != nil {
		return nil, err
	}
	if limited {
		limitWaits(config, commandLockWait, commandTimeout)
	}
	d := &databases{config: config, Admin: stream.Admin{KeyPrefix: o.keyPrefix}}
	if d.MySQL, err = openMySQL(config, o.mysqlConns); err != nil {
		return nil, err
	}
	if len(o.redis) > 0 {
		d.Redis = o.openRedis(o.master, o.redis...)
	}
	return d, nil
}

// close closes the servers and adds its errors to err.
func (d *databases) close(err *error) {
	*err = errors.Join(*err, d.MySQL.Close())
	if d.Redis != nil {
		*err = errors.Join(*err, d.Redis.Close())
	}
}
