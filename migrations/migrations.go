// Package migrations holds the schema of the service and brings a database up to it.
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

// Goods that the migrations put into a new database, so that the service can be tried at once.
const (
	FirstGoods = 1
	FirstStock = 6000 // units
)

// lockWait is how long a replica waits for another one that migrates the same database.
const lockWait = time.Minute

//go:embed *.sql
var files embed.FS

// Up applies the migrations that the database lacks and returns their file names. Any number of replicas may call it at
// the same time: one migrates, the others wait for up to a minute and then find nothing to do.
// It works on MySQL, MariaDB and TiDB. The pool must allow two connections: one keeps the lock.
func Up(ctx context.Context, db *sql.DB) (applied []string, err error) {
	unlock, err := lock(ctx, db)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unlock()) }()

	provider, err := goose.NewProvider(goose.DialectMySQL, db, files, goose.WithDisableGlobalRegistry(true),
		// None builds on another but on the first: one that came later with a lower number is applied all the same.
		goose.WithAllowOutofOrder(true))
	if err != nil {
		return nil, err
	}
	results, err := provider.Up(ctx)
	for _, result := range results {
		applied = append(applied, result.Source.Path)
	}
	return applied, err
}

// lock takes MySQL's named lock for the current database. It surrounds all that goose does: goose's own lockers leave
// its first step, creating the version table, unguarded, and its lock table for MySQL is polled every five seconds.
// The server frees the lock when its connection ends, so that a crash leaves nothing behind.
func lock(ctx context.Context, db *sql.DB) (unlock func() error, err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	// Named locks belong to the whole server and may have at most 64 characters.
	const name = "CONCAT('stock-migrate-', LEFT(SHA2(DATABASE(), 256), 40))"
	var granted sql.NullInt64
	err = conn.QueryRowContext(ctx, "SELECT GET_LOCK("+name+", ?)", int(lockWait.Seconds())).Scan(&granted)
	if err == nil && granted.Int64 != 1 {
		err = fmt.Errorf("another replica has been migrating this database for over %v", lockWait)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock the migrations: %w", err), conn.Close())
	}
	return func() error {
		// The migrations are done or have failed already: a context that ended must not keep the lock.
		_, err := conn.ExecContext(context.WithoutCancel(ctx), "DO RELEASE_LOCK("+name+")")
		return errors.Join(err, conn.Close())
	}, nil
}
