package main

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"stock/internal/must"
	"stock/internal/servers"
)

func TestServeOnGaleraNeedsToBeTold(t *testing.T) {
	t.Parallel()
	cluster, err := servers.StartGalera(t.Context(), servers.GaleraOptions{})
	if errors.Is(err, servers.ErrNotInstalled) && os.Getenv("STOCK_REQUIRE_GALERA") == "" {
		t.Skip(err)
	}
	must.Succeed(t, err)
	t.Cleanup(func() {
		if err := cluster.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	dsn, err := cluster.Nodes[0].CreateDatabase(t.Context(), "stock")
	must.Succeed(t, err)
	env := environment{"STOCK_MYSQL_DSN": dsn}
	if _, err := command(t, env, "serve"); err == nil || !strings.Contains(err.Error(), "with --galera") {
		t.Errorf("serve without --galera: %v, want a refusal", err)
	}
	const warning = "wsrep_sync_wait = 7 on the nodes"
	if log := launch(t, env, "serve", "--galera").log(); !strings.Contains(log, warning) {
		t.Errorf("with --galera, and wsrep_sync_wait = 0:\n%s\nwant a warning", log)
	}
	env["STOCK_MYSQL_DSN"] = dsn + "&wsrep_sync_wait=7"
	if log := launch(t, env, "serve", "--galera").log(); strings.Contains(log, "wsrep") {
		t.Errorf("with --galera, and wsrep_sync_wait = 7:\n%s\nwant no warning", log)
	}
}
