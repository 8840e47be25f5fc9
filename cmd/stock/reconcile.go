package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"stock/internal/stock"
)

type reconcileOptions struct {
	storeOptions
	logOptions
	goods []int64
	mend  bool
}

func newReconcile(getenv func(string) string) *cobra.Command {
	o := reconcileOptions{storeOptions: storeOptions{mysqlConns: 2, redisConns: 2}}
	cmd := &cobra.Command{
		Use:   "reconcile",
		Short: "Compare the stock in Redis and in MySQL, and mend Redis where MySQL proves what it should have",
		Long: `Compare the stock of each goods in Redis and in MySQL. Redis must have what MySQL has less the sales of redis-stream that are
on their way to it. Replicas may go on selling meanwhile. The exit status is 0 where all agree, or were mended, and 1 where
one differs or could not be compared.

With --mend, Redis gets what MySQL proves:
  Redis has too many         it lost writes, or units were sold from MySQL alone; they are taken from Redis, too
  Redis has none             it lost its data; it gets MySQL's stock. A sale that was lost before it came to MySQL stays lost:
                             MySQL cannot know of it. With appendfsync always there is none
  Redis has an older stock   a stock was set in MySQL and did not come to Redis, which has sold nothing since; Redis gets it
What nobody can prove is told and left as it is:
  Redis has sold from an     a stock was set in MySQL and did not come to Redis, and there are sales that MySQL did not deduct:
  older stock                whether they were made before it was set, no clock can prove
  Redis has too few          units left Redis without an entry in the stream: sold there by another strategy, or the entry
                             was deleted. To put them back might sell them twice
  MySQL has an older stock   MySQL lost writes, such as by a restore; sales since are in stream_sale, if at all
  MySQL has none             it does not know the goods
These end when the stock is counted and set: PUT /admin/stock/{goods_id} on an admin listener sets both.

A goods that redis-stream sells should be sold by nothing else, and restocked in Redis, which tells MySQL.`,
		Example: `  stock reconcile --mysql-dsn 'root:secret@tcp(127.0.0.1:3306)/stock' --redis 127.0.0.1:6379
  stock reconcile --goods 1,2 --mend    # servers from STOCK_MYSQL_DSN and STOCK_REDIS`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.password = getenv("STOCK_REDIS_PASSWORD")
			return o.reconcile(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	setFlags(cmd, getenv,
		group("Servers", func(f *pflag.FlagSet) {
			o.dsnFlag(f)
			o.redisFlag(f)
		}),
		group("What to do", func(f *pflag.FlagSet) {
			f.Int64SliceVar(&o.goods, "goods", nil, "comma-separated list of `goods` to compare; empty for all that MySQL has or redis-stream has sold")
			f.BoolVar(&o.mend, "mend", false, "mend Redis where MySQL proves what it should have")
		}),
		o.logOptions.group(),
	)
	return cmd
}

func (o *reconcileOptions) reconcile(ctx context.Context, stdout, stderr io.Writer) (err error) {
	log, err := o.logger(stderr)
	if err != nil {
		return err
	}
	if o.mysqlDSN == "" || len(o.redis) == 0 {
		return usagef("--mysql-dsn and --redis are both needed: what is to be compared?")
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
	client := o.openRedis(o.master, o.redis...)
	defer func() { err = errors.Join(err, client.Close()) }()
	service, err := stock.NewService(stock.Deps{MySQL: db, MySQLLocks: db, Redis: client}, nil)
	if err != nil {
		return err
	}
	goods := o.goods
	if len(goods) == 0 {
		if goods, err = service.GoodsToReconcile(ctx); err != nil {
			return err
		}
	}
	return o.compare(ctx, service, goods, stdout)
}

// secondLook is when what differs is looked at again: a stock that is set, or a restock, takes a moment from store to store.
const secondLook = 300 * time.Millisecond

// compare prints a line a goods, and fails where one differs in the end, or could not be compared.
func (o *reconcileOptions) compare(ctx context.Context, service *stock.Service, goods []int64, stdout io.Writer) error {
	table := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	defer table.Flush()
	fmt.Fprintln(table, "GOODS\tREDIS\tMYSQL\tON THEIR WAY\tFINDING")
	differ, failed := 0, 0
	var first error
	for _, id := range goods {
		b, err := service.Reconcile(ctx, id, false)
		if err == nil && b.Finding != stock.Agree {
			select {
			case <-time.After(secondLook):
			case <-ctx.Done():
				return ctx.Err()
			}
			b, err = service.Reconcile(ctx, id, o.mend)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			failed++
			first = cmp.Or(first, fmt.Errorf("goods %d: %w", id, err))
			fmt.Fprintf(table, "%d\t?\t?\t?\tcould not be compared: %v\n", id, err)
			continue
		}
		if b.Finding != stock.Agree && !b.Mended {
			differ++
		}
		fmt.Fprintf(table, "%d\t%s\t%s\t%d\t%s\n", id, units(b.Redis, b.Finding == stock.NotInRedis),
			units(b.MySQL, b.Finding == stock.NotInMySQL), b.Pending, finding(b))
	}
	switch {
	case failed > 0:
		return fmt.Errorf("%d of %d goods differ, and %d could not be compared, the first for this: %w", differ, len(goods), failed, first)
	case differ > 0:
		return fmt.Errorf("%d of %d goods differ", differ, len(goods))
	}
	return nil
}

func units(n int64, none bool) string {
	if none {
		return "-"
	}
	return fmt.Sprint(n)
}

// finding says all of a balance that is not a column.
func finding(b stock.Balance) string {
	text := string(b.Finding)
	switch d := b.Difference(); b.Finding {
	case stock.TooMany:
		text += fmt.Sprintf(": by %d", d)
	case stock.TooFew:
		text += fmt.Sprintf(": by %d", -d)
	}
	switch {
	case b.Mended:
		text += fmt.Sprintf("; mended: %d", b.Redis-b.Difference())
	case b.Finding.Mendable():
		text += "; --mend would mend it"
	case b.Finding != stock.Agree:
		text += "; cannot be mended, see --help"
	}
	if b.MySQL < 0 {
		text += fmt.Sprintf("; %d more were sold than MySQL had", -b.MySQL)
	}
	if b.Stale > 0 {
		text += fmt.Sprintf("; %d on their way were sold from another stock", b.Stale)
	}
	if b.Unreadable > 0 {
		text += fmt.Sprintf("; %d entries of the stream are no sales", b.Unreadable)
	}
	return text
}
