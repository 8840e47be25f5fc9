package main

import (
	"database/sql"
	"strings"
	"testing"
)

func TestPruneForgetsOldOrdersOnly(t *testing.T) {
	t.Parallel()
	dsn := shared.Database(t)
	env := environment{"STOCK_MYSQL_DSN": dsn}
	if _, err := command(t, env, "migrate"); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	// More than one transaction deletes.
	_, err = db.ExecContext(t.Context(), `INSERT INTO ledger (order_key, line, goods_id, count, remaining, outcome, fingerprint, created_at)
		WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 950)
		SELECT CONCAT(age, ' ', i), 0, 1, 1, 0, 'done', '', UTC_TIMESTAMP(6) - INTERVAL age HOUR FROM n, (SELECT 23 AS age UNION SELECT 25 UNION SELECT 26) ages`)
	if err != nil {
		t.Fatal(err)
	}
	out, err := command(t, env, "prune", "--older-than", "24h")
	if err != nil || !strings.Contains(out, "deleted 1900 rows") {
		t.Errorf("prune says %q, %v", out, err)
	}
	var left, young int
	err = db.QueryRowContext(t.Context(), "SELECT COUNT(*), SUM(order_key LIKE '23 %') FROM ledger").Scan(&left, &young)
	if err != nil || left != 950 || young != 950 {
		t.Errorf("%d rows are left, %d of them young, %v, want the 950 that are", left, young, err)
	}
}
