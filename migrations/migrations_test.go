package migrations_test

import (
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	_ "github.com/go-sql-driver/mysql"
	"github.com/pressly/goose/v3"

	"stock/internal/must"
	"stock/internal/servers/serverstest"
	"stock/migrations"
)

var shared serverstest.Servers

var update = flag.Bool("update", false, "rewrite the schema in docs/schema.md")

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

// The document shows the tables as MariaDB does; other servers write them differently.
func TestTheDocumentShowsTheSchema(t *testing.T) {
	t.Parallel()
	db := open(t, shared.Database(t))
	_, err := migrations.Up(t.Context(), db)
	must.Succeed(t, err)
	var version, tables string
	must.Succeed(t, db.QueryRowContext(t.Context(), "SELECT VERSION()").Scan(&version))
	if !strings.Contains(version, "MariaDB") {
		t.Skip("the server is not MariaDB")
	}
	must.Succeed(t, db.QueryRowContext(t.Context(), `SELECT GROUP_CONCAT(table_name ORDER BY table_name)
		FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name <> 'goose_db_version'`).Scan(&tables))
	var want strings.Builder
	for name := range strings.SplitSeq(tables, ",") {
		var text string
		must.Succeed(t, db.QueryRowContext(t.Context(), "SHOW CREATE TABLE "+name).Scan(&name, &text))
		text, _, _ = strings.Cut(strings.ReplaceAll(text, "`", ""), ") ENGINE=")
		want.WriteString(text + ");\n")
	}
	const file, begins = "../docs/schema.md", "```sql\n"
	document, err := os.ReadFile(file)
	must.Succeed(t, err)
	before, after, _ := strings.Cut(string(document), begins)
	shown, after, _ := strings.Cut(after, "```")
	switch {
	case shown == want.String():
	case *update:
		must.Succeed(t, os.WriteFile(file, []byte(before+begins+want.String()+"```"+after), 0o644))
	default:
		t.Errorf("%s shows another schema: run go test ./migrations -update\n%s\nwant\n%s", file, shown, &want)
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

// Applied migrations never run again, so a change of the schema needs a new migration.
func TestOldDatabaseGetsOnlyTheNewMigrations(t *testing.T) {
	t.Parallel()
	db := open(t, shared.Database(t))
	old, err := goose.NewProvider(goose.DialectMySQL, db, os.DirFS("."), goose.WithDisableGlobalRegistry(true))
	must.Succeed(t, err)
	_, err = old.UpTo(t.Context(), 2)
	must.Succeed(t, err)
	_, err = db.ExecContext(t.Context(), "UPDATE good_stock SET fence = 7")
	must.Succeed(t, err)
	applied, err := migrations.Up(t.Context(), db)
	if err != nil || !slices.Equal(applied, allMigrations[2:]) {
		t.Fatalf("applied %v, %v, want %v", applied, err, allMigrations[2:])
	}
	var fence int64
	var issuer string
	row := db.QueryRowContext(t.Context(), "SELECT fence, fence_issuer FROM good_stock")
	must.Succeed(t, row.Scan(&fence, &issuer))
	if fence != 7 || issuer != "" {
		t.Errorf("the row has token %d of issuer %q, want token 7 of no issuer", fence, issuer)
	}
}

func TestMigrationAddedWithALowerNumberIsApplied(t *testing.T) {
	t.Parallel()
	db := open(t, shared.Database(t))
	_, err := migrations.Up(t.Context(), db)
	_, err2 := db.ExecContext(t.Context(), "DROP TABLE ledger")
	_, err3 := db.ExecContext(t.Context(), "DELETE FROM goose_db_version WHERE version_id IN (4, 8)")
	_, err4 := db.ExecContext(t.Context(), "INSERT INTO goose_db_version (version_id, is_applied) VALUES (1000, TRUE)")
	must.Succeed(t, errors.Join(err, err2, err3, err4))
	applied, err := migrations.Up(t.Context(), db)
	if err != nil || !slices.Equal(applied, []string{"00004_ledger.sql", "00008_ledger_outcome.sql"}) {
		t.Errorf("applied %v, %v, want the two of the ledger", applied, err)
	}
}

// column is what an INSERT of an old replica relies on. Type and Extra are in lower case.
type column struct {
	Type, Nullable, Extra string
	HasDefault            bool
}

// keeps reports whether a column that becomes now serves those who know it as c. An ENUM may get more values, and a
// column a default.
func (c column) keeps(now column) bool {
	appended := strings.HasPrefix(c.Type, "enum(") && strings.HasPrefix(now.Type, strings.TrimSuffix(c.Type, ")")+",")
	return (now.Type == c.Type || appended) && now.Nullable == c.Nullable &&
		strings.Contains(now.Extra, c.Extra) && (now.HasDefault || !c.HasDefault)
}

// optional reports whether an INSERT may leave out the column.
func (c column) optional() bool {
	return c.Nullable == "YES" || c.HasDefault || strings.Contains(c.Extra, "auto_increment") ||
		strings.Contains(c.Extra, "generated")
}

// columns returns those of all tables but goose's, by table and name.
func columns(t *testing.T, db *sql.DB) map[string]column {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), `
		SELECT CONCAT(table_name, '.', column_name), LOWER(column_type), is_nullable, LOWER(extra),
			column_default IS NOT NULL
		FROM information_schema.columns
		WHERE table_schema = DATABASE() AND table_name <> 'goose_db_version'`)
	must.Succeed(t, err)
	defer rows.Close()
	found := map[string]column{}
	for rows.Next() {
		var name string
		var c column
		must.Succeed(t, rows.Scan(&name, &c.Type, &c.Nullable, &c.Extra, &c.HasDefault))
		found[name] = c
	}
	must.Succeed(t, rows.Err())
	return found
}

// incompatible says what replicas of the version before cannot use any more. In a rolling upgrade, they sell while and
// after the schema is migrated. So a migration removes no column, keeps the type of every column or appends to its
// ENUM, takes away no default and no AUTO_INCREMENT, and lets an INSERT leave out a new column of an old table.
func incompatible(before, after map[string]column) (complaints []string) {
	oldTables := map[string]bool{}
	for name, old := range before {
		table, _, _ := strings.Cut(name, ".")
		oldTables[table] = true
		now, exists := after[name]
		if !exists {
			complaints = append(complaints, "removes "+name)
		} else if !old.keeps(now) {
			complaints = append(complaints, fmt.Sprintf("turns %s from %+v into %+v", name, old, now))
		}
	}
	for name, now := range after {
		table, _, _ := strings.Cut(name, ".")
		_, old := before[name]
		if oldTables[table] && !old && !now.optional() {
			complaints = append(complaints, "adds "+name+" without a default: an INSERT of an old replica would fail")
		}
	}
	return complaints
}

func TestEveryMigrationLeavesWhatOldReplicasUse(t *testing.T) {
	t.Parallel()
	db := open(t, shared.Database(t))
	provider, err := goose.NewProvider(goose.DialectMySQL, db, os.DirFS("."), goose.WithDisableGlobalRegistry(true))
	must.Succeed(t, err)
	before := map[string]column{}
	for range allMigrations {
		result, err := provider.UpByOne(t.Context())
		must.Succeed(t, err)
		after := columns(t, db)
		for _, complaint := range incompatible(before, after) {
			t.Errorf("%s %s", result.Source.Path, complaint)
		}
		before = after
	}
}
