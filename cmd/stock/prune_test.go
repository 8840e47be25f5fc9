package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/internal/must"
	"stock/internal/servers"
	"stock/internal/stock/stocktest"
)

// limitRowWait makes waits for a row end after a second.
func (e environment) limitRowWait(t *testing.T) {
	t.Helper()
	a := stocktest.Addresses{MySQL: e["STOCK_MYSQL_DSN"]}
	e["STOCK_MYSQL_DSN"] = a.WithMySQLParam(t, "innodb_lock_wait_timeout", "1").MySQL
}

func TestPruneTriesAgainIfRowsAreLocked(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	db := openDB(t, env)
	_, err := db.ExecContext(t.Context(), `
		INSERT INTO ledger (order_key, line, goods_id, count, remaining, outcome, fingerprint, created_at)
		VALUES ('old', 0, 1, 1, 0, 'done', '', UTC_TIMESTAMP(6) - INTERVAL 1 DAY)`)
	must.Succeed(t, err)
	row, err := db.Begin()
	must.Succeed(t, err)
	defer row.Rollback()
	_, err = row.Exec("SELECT * FROM ledger FOR UPDATE")
	must.Succeed(t, err)
	// A wait ends after 1 s; the lock outlasts one, and not all of them.
	release := time.AfterFunc(1500*time.Millisecond, func() { _ = row.Rollback() })
	defer release.Stop()
	env.limitRowWait(t)
	out, err := command(t, env, "prune", "--older-than", "1h")
	if err != nil || !strings.Contains(out, "deleted 1 rows") {
		t.Errorf("prune says %q, %v", out, err)
	}
}

// A sale whose entry may still be in a stream would be deducted again if it were deleted.
func TestPruneDeletesSalesOfRedisStreamThatCannotBeDeliveredAgain(t *testing.T) {
	t.Parallel()
	env, client := streamed(t, servers.RedisOptions{})
	db := openDB(t, env)
	_, err := db.ExecContext(t.Context(), `
		INSERT INTO stream_sale (goods_id, entry, nonce, units, epoch, deducted, written)
		SELECT 1, CONCAT(age, '-0'), 1, 1, 0, age <> 9, UTC_TIMESTAMP(6) - INTERVAL age HOUR
		FROM (SELECT 1 AS age UNION SELECT 3 UNION SELECT 7 UNION SELECT 9) ages`)
	must.Succeed(t, err)
	prune := func(want string, left ...string) {
		t.Helper()
		out, err := command(t, env, "prune", "--older-than", "2h")
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("prune says %q, %v, want %q", out, err, want)
		}
		var entries string
		row := db.QueryRowContext(t.Context(), "SELECT GROUP_CONCAT(entry ORDER BY entry) FROM stream_sale")
		if err := row.Scan(&entries); err != nil || entries != strings.Join(left, ",") {
			t.Errorf("left are %s, %v, want %v", entries, err, left)
		}
	}
	// An entry that was delivered five hours ago and not acknowledged.
	entry := redis.XAddArgs{
		Stream: "stock:{1}:sales",
		ID:     fmt.Sprintf("%d-0", time.Now().Add(-5*time.Hour).UnixMilli()),
		Values: []string{"units", "1"},
	}
	must.Succeed(t, client.XAdd(t.Context(), &entry).Err())
	prune("deleted 1 sales", "1-0", "3-0", "9-0") // 9-0 was not deducted
	must.Succeed(t, client.Del(t.Context(), entry.Stream).Err())
	prune("deleted 1 sales", "1-0", "9-0")
}

// A server that scanned a table to find the rows to delete would wait for the row of a request in progress.
func TestPruneDeletesOldRowsAndWaitsForNoOthers(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	db := openDB(t, env)
	// 4,000 rows that are young, and 1,000 that are old.
	const numbers = ` WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 999)
		SELECT `
	const ages = " FROM n, (SELECT 0 AS age UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 25) ages"
	for _, statement := range []string{
		`INSERT INTO ledger (order_key, line, goods_id, count, remaining, outcome, fingerprint, created_at)` + numbers +
			`CONCAT(age, ' ', i), 0, 1, 1, 0, 'done', '', UTC_TIMESTAMP(6) - INTERVAL age HOUR` + ages,
		`INSERT INTO reservation (id, goods_id, count, ttl_ms, epoch, state, created_at, expires_at, ended_at)` + numbers +
			`CONCAT(age, ' ', i), 1, 1, 1, 0, IF(i < 10, 'held', 'confirmed'), UTC_TIMESTAMP(6) - INTERVAL age HOUR,
			UTC_TIMESTAMP(6) - INTERVAL age HOUR, UTC_TIMESTAMP(6)` + ages,
	} {
		_, err := db.ExecContext(t.Context(), statement)
		must.Succeed(t, err)
	}
	row, err := db.Begin()
	must.Succeed(t, err)
	defer row.Rollback()
	for _, locked := range []string{
		"SELECT * FROM ledger FORCE INDEX (PRIMARY) WHERE order_key = '1 500' FOR UPDATE",
		"SELECT * FROM reservation FORCE INDEX (PRIMARY) WHERE id = CAST('1 500' AS BINARY(16)) FOR UPDATE",
	} {
		_, err := row.Exec(locked)
		must.Succeed(t, err)
	}
	env.limitRowWait(t)
	out, err := command(t, env, "prune", "--older-than", "24h")
	for _, want := range []string{"deleted 1000 rows", "deleted 990 reservations"} {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("prune says %q, %v, want %q", out, err, want)
		}
	}
	for table, want := range map[string]int{"ledger": 4000, "reservation": 4010} {
		var left int
		if err := db.QueryRow("SELECT COUNT(*) FROM " + table).Scan(&left); err != nil || left != want {
			t.Errorf("%s has %d rows, %v, want the 4000 that are young, and those of units that are held", table, left, err)
		}
	}
}
