// Package migrations contains the database schema of the service and applies it.
package migrations

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"time"

	"github.com/pressly/goose/v3"
)

// The item that the migrations put into a new database, so that the service can be tried at once.
const (
	FirstGoods = 1    // goods_id
	FirstStock = 6000 // units
)

// lockWait limits how long a replica waits while another one migrates the same database.
const lockWait = time.Minute

//go:embed *.sql
var files embed.FS

// Up applies the missing migrations and returns their file names. Any number of replicas may call it at the same time:
// one migrates while the others wait, for at most a minute, and then have nothing to do. It works with MySQL, MariaDB
// and TiDB. The pool must allow two connections, because one holds the lock.
func Up(ctx context.Context, db *sql.DB) (applied []string, err error) {
	unlock, err := lock(ctx, db)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unlock()) }()

	provider, err := goose.NewProvider(goose.DialectMySQL, db, files, goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return nil, err
	}
	results, err := provider.Up(ctx)
	for _, result := range results {
		applied = append(applied, result.Source.Path)
	}
	return applied, err
}

// lock takes a named lock of MySQL for the current database. The lockers of goose are not enough: they do not protect
// the creation of its version table, and the one for MySQL polls a table every five seconds. The server releases the
// lock when the connection ends, so a crash does not leave it locked.
func lock(ctx context.Context, db *sql.DB) (unlock func() error, err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	// Names of locks are shared by all databases of a server and have at most 64 characters.
	const name = "CONCAT('stock-migrate-', LEFT(SHA2(DATABASE(), 256), 40))"
	var granted sql.NullInt64
	err = conn.QueryRowContext(ctx, "SELECT GET_LOCK("+name+", ?)", int(lockWait.Seconds())).Scan(&granted)
	if err == nil && granted.Int64 != 1 {
		err = fmt.Errorf("another replica is migrating this database: waited %v, try again later", lockWait)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock the migrations: %w", err), conn.Close())
	}
	return func() error {
		// Release the lock even if ctx has ended.
		_, err := conn.ExecContext(context.WithoutCancel(ctx), "DO RELEASE_LOCK("+name+")")
		return errors.Join(err, conn.Close())
	}, nil
}
