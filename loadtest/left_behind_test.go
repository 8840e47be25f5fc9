package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"stock/internal/must"
	"stock/internal/servers/serverstest"
)

// The account may not drop the database, and the service, which creates the tables, never ends.
func TestAnInterruptedStartSaysWhatItCouldNotRemove(t *testing.T) {
	t.Parallel()
	f := startForeign(t)
	execute(t, f.admin,
		"CREATE USER left_lab@'127.0.0.1'",
		"GRANT CREATE, SELECT, INSERT ON `stock\\_lab\\_%`.* TO left_lab@'127.0.0.1'")
	_, server, _ := strings.Cut(f.dsn, "@")
	endless := filepath.Join(t.TempDir(), "stock")
	//nolint:gosec // a program must be executable
	must.Succeed(t, os.WriteFile(endless, []byte("#!/bin/sh\nexec sleep 60\n"), 0o755))
	ctx, interrupt := context.WithCancel(t.Context())
	var left string
	ended := make(chan result, 1)
	go func() {
		ended <- runHere(ctx, "run", "--out", filepath.Join(t.TempDir(), "new"), "--mysql-dsn=left_lab@"+server,
			"--stock-binary="+endless)
	}()
	serverstest.Eventually(t, "the database has been created", func() bool {
		return f.admin.QueryRowContext(t.Context(), "SHOW DATABASES LIKE 'stock\\_lab\\_%'").Scan(&left) == nil
	})
	interrupt()
	got := <-ended
	_, said, _ := strings.Cut(got.stderr, "loadtest: interrupted\n")
	if got.code != exitInterrupted || !strings.Contains(said, "database "+left) || strings.Contains(said, "cancel") {
		t.Errorf("exit status %d, %s", got.code, got.stderr)
	}
}
