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

// ErrNeedsGaleraFlag means that MySQL is a node of Galera, and the replica was not told so: see stock.Deps.
var ErrNeedsGaleraFlag = errors.New("MySQL is a node of Galera: start the replica with --galera, or it may lose sales")

// CheckMySQL reports whether the server lets the account of a pool in and takes writes. A password that has changed
// shows only on a new connection, so the pool should keep no idle ones. ErrBusy means that the server has no connection
// left for the question; the connections that are open still work.
//
// A read-only server is refused even if this account could still write: what a former primary accepts is lost when it
// becomes a replica.
func CheckMySQL(ctx context.Context, db *sqlx.DB, galera bool) error {
	on, err := variablesThatAreOn(ctx, db)
	switch {
	case err != nil:
		return classify(err)
	case on[wsrepOn] != "" && !galera:
		return ErrNeedsGaleraFlag
	}
	for name, value := range on {
		if name != wsrepOn {
			return fmt.Errorf("MySQL takes no writes: %s is %s", name, value)
		}
	}
	if on[wsrepOn] != "" {
		return checkNode(ctx, db)
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

// checkNode returns an error if a node of Galera does not take part in its cluster. A node without a majority answers
// SHOW, and refuses all other statements.
func checkNode(ctx context.Context, db *sqlx.DB) error {
	var name, ready string
	row := db.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'wsrep_ready'")
	if err := row.Scan(&name, &ready); err != nil {
		return classify(err)
	}
	if ready != "ON" {
		return errors.New("MySQL is a node of Galera that has no majority, or is not up to date yet (wsrep_ready)")
	}
	return nil
}
