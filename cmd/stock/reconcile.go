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

	"stock/internal/monotonic"
	"stock/internal/stock/stream"
)

type reconcileOptions struct {
	maintenance
	goods []int64
	mend  bool
}

func newReconcile(getenv func(string) string) *cobra.Command {
	o := reconcileOptions{maintenance: maintenance{storeOptions: storeOptions{mysqlConns: 2}}}
	cmd := &cobra.Command{
		Use:   "reconcile",
		Short: "Compare the stock in Redis with MySQL, and mend Redis where possible",
		Long: `Compare the stock of each item in Redis with MySQL. Redis must have the stock of MySQL less the sales of
redis-stream that have not reached MySQL yet (pending). Replicas may keep selling.

Exit status: 0 all items agree or were mended; 1 an item differs, and was not mended; 2 a mistake in the configuration;
3 no difference was found, but not every item could be compared, for example because a server did not answer.

With --mend, Redis gets the value that MySQL proves:
  Redis has too many         it lost writes, or units were sold in MySQL only: Redis is lowered by them
  Redis has none             it lost its data: it gets the stock of MySQL. Sales that were lost before they reached
                             MySQL stay lost. With appendfsync always, only a failover
                             loses any
  Redis has an older stock   the stock was set in MySQL but not in Redis, which has sold nothing since: Redis gets it
What nobody can prove is reported and left unchanged:
  Redis has sold from an     the stock was set in MySQL but not in Redis, and there are sales that MySQL has not
  older stock                deducted: no clock can prove whether they were made before or after it was set
  Redis has too few          units left Redis without an entry in the stream: another strategy sold them, or the entry
                             was deleted. Putting them back might sell them twice
  MySQL has an older stock   MySQL lost writes, for example because a backup was restored; stream_sale may have the
                             sales since then
  MySQL has none             the item does not exist there
To resolve these, count the units and set the stock: PUT /admin/stock/{goods_id} on an admin listener sets both.

Sell the items of redis-stream with no other strategy, and restock them in Redis, from where MySQL is updated.

` + passwordHelp,
		Example: `  stock reconcile --mysql-dsn 'root:secret@tcp(127.0.0.1:3306)/stock' --redis 127.0.0.1:6379
  stock reconcile --goods 1,2 --mend    # servers from STOCK_MYSQL_DSN and STOCK_REDIS`,
	}
	return o.command(cmd, getenv, o.reconcile, group("What to do", func(f *pflag.FlagSet) {
		f.Int64SliceVar(&o.goods, "goods", nil,
			"comma-separated list of `goods_id` to compare (default: every item in MySQL, or with sales in the stream)")
		f.BoolVar(&o.mend, "mend", false, "mend Redis if MySQL proves the correct value")
	}))
}

// errDiffer is returned if an item differs in the end.
var errDiffer = errors.New("items differ")

// reconcile fails as undecided if it could not compare.
func (o *reconcileOptions) reconcile(ctx context.Context, stdout io.Writer) error {
	err := o.compareItems(ctx, stdout)
	if exitCode(err) != exitFailed || errors.Is(err, errDiffer) {
		return err
	}
	return exitError{err, exitUndecided}
}

func (o *reconcileOptions) compareItems(ctx context.Context, stdout io.Writer) (err error) {
	if o.mysqlDSN == "" || len(o.redis) == 0 {
		return usagef("--mysql-dsn and --redis are both required")
	}
	servers, err := o.open(true)
	if err != nil {
		return err
	}
	defer servers.close(&err)
	ids := o.goods
	if len(ids) == 0 {
		if ids, err = servers.Items(ctx); err != nil {
			return err
		}
	}
	return o.compareAll(ctx, servers.Admin, ids, stdout)
}

// secondLook is the time after which an item that differs is compared again: setting a stock, or a restock, takes a
// moment to reach both stores.
const secondLook = 300 * time.Millisecond

// compareAll prints a line per item. It fails if an item differs in the end or could not be compared.
func (o *reconcileOptions) compareAll(
	ctx context.Context, admin stream.Admin, ids []int64, stdout io.Writer,
) error {
	table := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	defer table.Flush()
	fmt.Fprintln(table, "GOODS\tREDIS\tMYSQL\tPENDING\tFINDING")
	differ, failed := 0, 0
	var first error
	for _, id := range ids {
		b, err := o.compare(ctx, admin, id)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			failed++
			first = cmp.Or(first, fmt.Errorf("item %d: %w", id, err))
			fmt.Fprintf(table, "%d\t?\t?\t?\tcould not be compared: %v\n", id, err)
			continue
		}
		if b.Finding != stream.Agree && !b.Mended {
			differ++
		}
		fmt.Fprintf(table, "%d\t%s\t%s\t%d\t%s\n", id, units(b.Redis, b.Finding == stream.NotInRedis),
			units(b.MySQL, b.Finding == stream.NotInMySQL), b.Pending, finding(b))
	}
	var differing error
	if differ > 0 {
		differing = fmt.Errorf("%d of %d %w", differ, len(ids), errDiffer)
	}
	if failed > 0 {
		return errors.Join(differing,
			fmt.Errorf("%d of %d items could not be compared; the first error: %w", failed, len(ids), first))
	}
	return differing
}

// compare compares one item, and once more if it differs. Only the second time may mend it.
func (o *reconcileOptions) compare(ctx context.Context, admin stream.Admin, id int64) (stream.Balance, error) {
	b, err := admin.Reconcile(ctx, id, false)
	if err != nil || b.Finding == stream.Agree {
		return b, err
	}
	if err := monotonic.Sleep(ctx, secondLook); err != nil {
		return b, err
	}
	return admin.Reconcile(ctx, id, o.mend)
}

func units(n int64, none bool) string {
	if none {
		return "-"
	}
	return fmt.Sprint(n)
}

// finding describes a balance apart from the numbers that have columns.
func finding(b stream.Balance) string {
	text := string(b.Finding)
	switch d := b.Difference(); b.Finding {
	case stream.TooMany:
		text += fmt.Sprintf(": by %d", d)
	case stream.TooFew:
		text += fmt.Sprintf(": by %d", -d)
	}
	switch {
	case b.Mended:
		text += fmt.Sprintf("; mended: Redis now has %d", b.Redis-b.Difference())
	case b.Finding.Mendable():
		text += "; --mend would mend it"
	case b.Finding != stream.Agree:
		text += "; cannot be mended, see --help"
	}
	if b.MySQL < 0 {
		text += fmt.Sprintf("; %d more were sold than MySQL had", -b.MySQL)
	}
	if b.Stale > 0 {
		text += fmt.Sprintf("; %d pending were sold from another stock", b.Stale)
	}
	if b.Unreadable > 0 {
		text += fmt.Sprintf("; %d entries of the stream are not sales", b.Unreadable)
	}
	return text
}
