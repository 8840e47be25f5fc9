package migrations_test

import (
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	_ "github.com/go-sql-driver/mysql"

	"stock/internal/must"
	"stock/internal/servers/serverstest"
	"stock/migrations"
)

var shared serverstest.Servers

// allMigrations are in order of their numbers.
var allMigrations, _ = filepath.Glob("*.sql") // fails only for a malformed pattern

func TestMain(m *testing.M) { os.Exit(shared.Run(m)) }

func open(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	must.Succeed(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

func TestConcurrentReplicasMigrateOnce(t *testing.T) {
	t.Parallel()
	const replicas = 8
	dsn := shared.Database(t)
	type result struct {
		applied []string
		err     error
	}
	results := make(chan result, replicas)
	start := make(chan struct{})
	for range replicas {
		db := open(t, dsn)
		go func() {
			<-start
			applied, err := migrations.Up(t.Context(), db)
			results <- result{applied, err}
		}()
	}
	close(start)
	var applied []string
	for range replicas {
		r := <-results
		if r.err != nil {
			t.Error(r.err)
		}
		applied = append(applied, r.applied...)
	}
	if !slices.Equal(applied, allMigrations) {
		t.Errorf("applied %v, want %v", applied, allMigrations)
	}
}

func TestNewDatabaseHasTheFirstItem(t *testing.T) {
	t.Parallel()
	db := open(t, shared.Database(t))
	_, err := migrations.Up(t.Context(), db)
	must.Succeed(t, err)
	var units, version, fence int64
	const query = "SELECT stock, version, fence FROM good_stock WHERE goods_id = ?"
	row := db.QueryRowContext(t.Context(), query, migrations.FirstGoods)
	must.Succeed(t, row.Scan(&units, &version, &fence))
	if units != migrations.FirstStock || version != 0 || fence != 0 {
		t.Errorf("stock %d, version %d, fence %d, want %d, 0, 0", units, version, fence, migrations.FirstStock)
	}
	row = db.QueryRowContext(t.Context(), "SELECT SUM(stock) FROM good_slot WHERE goods_id = ?", migrations.FirstGoods)
	if err := row.Scan(&units); err != nil || units != migrations.FirstStock {
		t.Errorf("the slots have %d units, %v, want %d", units, err, migrations.FirstStock)
	}
	row = db.QueryRowContext(t.Context(), "SELECT unmade FROM unit_stock WHERE goods_id = ?", migrations.FirstGoods)
	if err := row.Scan(&units); err != nil || units != migrations.FirstStock {
		t.Errorf("%d units have no row, %v, want %d", units, err, migrations.FirstStock)
	}
}

// MySQL cannot roll back a CREATE TABLE. A migration that is interrupted before goose has recorded it runs again.
func TestInterruptedMigrationRunsAgain(t *testing.T) {
	t.Parallel()
	db := open(t, shared.Database(t))
	_, err := migrations.Up(t.Context(), db)
	_, err2 := db.ExecContext(t.Context(), "UPDATE good_stock SET stock = 5")
	_, err3 := db.ExecContext(t.Context(), "DELETE FROM goose_db_version WHERE version_id > 0")
	applied, err4 := migrations.Up(t.Context(), db)
	must.Succeed(t, errors.Join(err, err2, err3, err4))
	var units int64
	must.Succeed(t, db.QueryRowContext(t.Context(), "SELECT stock FROM good_stock").Scan(&units))
	if !slices.Equal(applied, allMigrations) || units != 5 {
		t.Errorf("applied %v and left %d units, want every migration and 5 units", applied, units)
	}
}
