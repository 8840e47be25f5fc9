package servers_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"stock/internal/must"
)

func TestPostgresServesOnlyClientsWithThePassword(t *testing.T) {
	t.Parallel()
	dsn := shared.Postgres(t)
	conn, err := pgx.Connect(t.Context(), dsn)
	must.Succeed(t, err)
	defer conn.Close(t.Context())
	var listens string
	must.Succeed(t, conn.QueryRow(t.Context(), "SELECT current_setting('listen_addresses')").Scan(&listens))
	if listens != "127.0.0.1" {
		t.Errorf("it listens on %s", listens)
	}
	wrong := strings.Replace(dsn, "@", "x@", 1)
	if _, err := pgx.Connect(t.Context(), wrong); err == nil || !strings.Contains(err.Error(), "28P01") {
		t.Errorf("a client with another password is told: %v", err)
	}
}
