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
	// No server has all of these, and some have values besides ON and OFF.
	const query = `SHOW GLOBAL VARIABLES WHERE Variable_name IN
		('read_only', 'innodb_read_only', 'tidb_restricted_read_only', 'tidb_super_read_only', 'wsrep_on')`
	var variables []struct {
		Name  string `db:"Variable_name"`
		Value string `db:"Value"`
	}
	err := db.SelectContext(ctx, &variables, query)
	if mysql.IsBusy(err) {
		return fmt.Errorf("%w: MySQL: %w", stock.ErrBusy, err)
	}
	for _, v := range variables {
		switch set := !strings.EqualFold(v.Value, "OFF") && v.Value != "0"; {
		case set && v.Name == "wsrep_on":
			return checkNode(ctx, db, galera)
		case set:
			return fmt.Errorf("MySQL takes no writes: %s is %s", v.Name, v.Value)
		}
	}
	return err
}

// checkNode returns an error if a node of Galera does not take part in its cluster, or if the replica was not told that
// it is one. A node without a majority answers SHOW, and refuses all other statements.
func checkNode(ctx context.Context, db *sqlx.DB, told bool) error {
	if !told {
		return ErrNeedsGaleraFlag
	}
	var name, ready string
	row := db.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'wsrep_ready'")
	if err := row.Scan(&name, &ready); err != nil {
		return err
	}
	if ready != "ON" {
		return errors.New("MySQL is a node of Galera that has no majority, or is not up to date yet (wsrep_ready)")
	}
	return nil
}
