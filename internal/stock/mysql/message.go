package mysql

import (
	"context"
	"database/sql/driver"

	"github.com/go-sql-driver/mysql"
)

// together sends the statements of a transaction in one message, so that the server ends the transaction even if the
// replica is stopped. As with exec, they do not end with ctx. The results include that of START TRANSACTION.
func (c *conn) together(ctx context.Context, statements string, args ...any) (all results, err error) {
	if err := c.endBefore(ctx, c.Conn); err != nil {
		return results{}, err
	}
	values := make([]driver.NamedValue, len(args))
	for i, arg := range args {
		values[i].Ordinal = i + 1
		if values[i].Value, err = driver.DefaultParameterConverter.ConvertValue(arg); err != nil {
			return results{}, err
		}
	}
	ctx = context.WithoutCancel(ctx)
	statements = "START TRANSACTION; " + statements + "; COMMIT"
	err = c.Raw(func(raw any) error {
		message, err := raw.(driver.ExecerContext).ExecContext(ctx, statements, values)
		if err != nil {
			return err
		}
		of := message.(mysql.Result)
		all = results{of.AllRowsAffected(), of.AllLastInsertIds()}
		return nil
	})
	if err != nil {
		_, rollback := c.ExecContext(ctx, "ROLLBACK") // the statement that failed has left the transaction open
		c.broken = c.broken || rollback != nil
		return results{}, classifyTogether(err)
	}
	return all, nil
}

// results are what the statements of a transaction have done.
type results struct{ rows, ids []int64 }

func (r *results) of(statement int) Changed { return Changed{r.rows[statement], r.ids[statement]} }

// expectOneRow ends a transaction that is sent in one message with an error if its last statement has not changed
// exactly one row. It does not only compare with 0: the server goes on with a message whose sender has died, and
// ROW_COUNT() is -1 after a statement whose answer could not be sent. The variable has no other value than 0 and 1.
const expectOneRow = "SET foreign_key_checks = IF(ROW_COUNT() = 1, 1, 2)"

// expectBefore is like expectOneRow, and ends a transaction after a time, which is its argument.
const expectBefore = "SET foreign_key_checks = IF(UTC_TIMESTAMP(6) <= ?, 1, 2)"
