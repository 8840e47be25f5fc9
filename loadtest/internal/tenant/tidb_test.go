package tenant_test

import (
	"strings"
	"testing"

	"stock/internal/servers"
	"stock/internal/servers/serverstest"
	"stock/loadtest/internal/oracle"
	"stock/loadtest/internal/tenant"
)

func TestTiDBOfTheUserIsRefused(t *testing.T) {
	if serverstest.TiDB == "" {
		t.Skip("STOCK_TIDB does not name a tidb-server")
	}
	server, err := servers.StartTiDB(t.Context(), serverstest.TiDB)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Kill()
	_, err = tenant.CreateDatabase(t.Context(), server.DSN(""), oracle.Account{}, "stock_lab")
	if err == nil || !strings.Contains(err.Error(), "--tidb") {
		t.Errorf("got %v, want that --tidb is named", err)
	}
}
