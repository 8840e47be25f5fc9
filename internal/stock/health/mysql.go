package health

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jmoiron/sqlx"

	"stock/internal/stock"
	"stock/internal/stock/mysql"
)

// checkMySQL reports whether the server lets the account of a pool in and takes writes. A password that has changed
// shows only on a new connection, so the pool should keep no idle ones. ErrBusy means that the server has no connection
// left for the question; the connections that are open still work.
//
// A read-only server is refused even if this account could still write: what a former primary accepts is lost when it
// becomes a replica. A node of Galera is refused because it can confirm a transaction that it has rolled back.
func checkMySQL(ctx context.Context, db *sqlx.DB) error {
	on, err := variablesThatAreOn(ctx, db)
	if err != nil {
		return classify(err)
	}
	for name, value := range on {
		if name == wsrepOn {
			return errors.New("MySQL is a node of a Galera cluster, on which sales can be lost: use one server")
		}
		return fmt.Errorf("MySQL takes no writes: %s is %s", name, value)
	}
	return nil
}

func classify(err error) error {
	if mysql.IsBusy(err) {
		return fmt.Errorf("%w: MySQL: %w", stock.ErrBusy, err)
	}
	return err
}

const wsrepOn = "wsrep_on"

// variablesThatAreOn returns those of the variables that matter here. No server has all of them, and some have values
// besides ON and OFF.
func variablesThatAreOn(ctx context.Context, db *sqlx.DB) (map[string]string, error) {
	var variables []struct {
		Name  string `db:"Variable_name"`
		Value string `db:"Value"`
	}
	err := db.SelectContext(ctx, &variables, `SHOW GLOBAL VARIABLES WHERE Variable_name IN
		('read_only', 'innodb_read_only', 'tidb_restricted_read_only', 'tidb_super_read_only', '`+wsrepOn+`')`)
	on := map[string]string{}
	for _, v := range variables {
		if !strings.EqualFold(v.Value, "OFF") && v.Value != "0" {
			on[v.Name] = v.Value
		}
	}
	return on, err
}
