package main

import (
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"stock/internal/must"
)

// MySQL was restored from an older backup, and Redis has lost the units but not their epoch.
func TestMigrateReportsAnItemThatItDoesNotCopyToRedis(t *testing.T) {
	t.Parallel()
	env, client := streamed(t, redisOptions)
	must.Succeed(t, client.Del(t.Context(), "stock:{1}").Err())
	must.Succeed(t, client.Set(t.Context(), "stock:{1}:epoch", 7, 0).Err())
	out, err := command(t, env, "migrate")
	if err != nil || strings.Contains(out, "Redis has item 1") ||
		!strings.Contains(out, "item 1 in Redis was left as it is: MySQL has an older stock") {
		t.Errorf("migrate: %v, and printed\n%s\nwant what it found", err, out)
	}
}

func TestMigrateSaysHowToCreateAMissingDatabase(t *testing.T) {
	t.Parallel()
	config, err := mysql.ParseDSN(shared.Database(t))
	must.Succeed(t, err)
	config.DBName = "missing"
	_, err = command(t, environment{"STOCK_MYSQL_DSN": config.FormatDSN()}, "migrate")
	if err == nil || !strings.Contains(err.Error(), "CREATE DATABASE") {
		t.Errorf("migrate says %v", err)
	}
}
