package servers_test

import (
	"strings"
	"testing"

	"stock/internal/must"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
)

func TestTiDBAnswersWithItsPasswordOnly(t *testing.T) {
	path := serverstest.TiDB
	if path == "" {
		t.Skip("these tests do not run on TiDB: see make test-tidb")
	}
	tidb, err := servers.StartTiDB(t.Context(), path)
	must.Succeed(t, err)
	serverstest.StopAfterTest(t, tidb)
	if !strings.HasPrefix(tidb.Version, "TiDB ") {
		t.Errorf("version %q, want that of TiDB", tidb.Version)
	}
	dsn, err := tidb.CreateDatabase(t.Context(), "stock")
	must.Succeed(t, err)
	for dsn, want := range map[string]string{
		dsn: "",
		strings.Replace(dsn, "@tcp", "wrong@tcp", 1): "Access denied",
		"root@tcp(" + tidb.Addr + ")/":               "Access denied",
	} {
		err := open(t, dsn).PingContext(t.Context())
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
