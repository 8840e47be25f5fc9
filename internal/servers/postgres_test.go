package servers_test

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"stock/internal/servers"
	"stock/internal/servers/serverstest"
)

func startPostgres(t *testing.T) *servers.Postgres {
	t.Helper()
	server, err := servers.StartPostgres(t.Context(), servers.PostgresOptions{Relaxed: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop(t.Context()) })
	return server
}

func TestPostgresServesOnlyClientsWithThePassword(t *testing.T) {
	t.Parallel()
	server := startPostgres(t)
	conn, err := pgx.Connect(t.Context(), server.DSN("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var version, listens, encoding string
	if err := conn.QueryRow(t.Context(), `SELECT current_setting('server_version'), current_setting('listen_addresses'),
		current_setting('server_encoding')`).Scan(&version, &listens, &encoding); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix("PostgreSQL "+version, server.Version) || listens != "127.0.0.1" || encoding != "UTF8" {
		t.Errorf("%s says that it is %s, listens on %s and stores %s", server.Version, version, listens, encoding)
	}
	wrong := strings.Replace(server.DSN("postgres"), "@", "x@", 1)
	if _, err := pgx.Connect(t.Context(), wrong); err == nil || !strings.Contains(err.Error(), "28P01") {
		t.Errorf("a client with another password is told: %v", err)
	}
}

func TestPostgresDoesNotRunAsRoot(t *testing.T) {
	t.Parallel()
	server := startPostgres(t)
	status, err := os.ReadFile("/proc/" + strconv.Itoa(server.PID) + "/status")
	if err != nil {
		t.Skip("there is no /proc here, which tells who runs a process")
	}
	if strings.Contains(string(status), "\nUid:\t0\t") {
		t.Errorf("it runs as root:\n%s", status)
	}
}

func TestPostgresLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	server := startPostgres(t)
	if err := server.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	serverstest.Gone(t, []int{server.PID}, []string{server.Addr})
	if _, err := os.Stat(server.Log); !os.IsNotExist(err) {
		t.Errorf("its log is still there: %v", err)
	}
}
