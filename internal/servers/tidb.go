package servers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// tidbStartTimeout is how long TiDB may take to start for the first time, when it creates its system tables.
const tidbStartTimeout = 2 * time.Minute

// StartTiDB starts tidb-server, one node with its embedded store, instead of MySQL, and waits until it answers. "make
// tidb" builds it. path is the path of the program, or its name if it is in PATH.
//
// One node shows what TiDB's transactions do with the statements of the service. It says nothing about the durability
// and the speed of a TiDB cluster, which has TiKV below it.
func StartTiDB(ctx context.Context, path string) (*MySQL, error) {
	path, err := exec.LookPath(path)
	if err != nil {
		return nil, fmt.Errorf("find TiDB: %w; build it with \"make tidb\"", err)
	}
	m, err := newMySQL("tidb", "data")
	if err != nil {
		return nil, err
	}
	m.command = Command{Name: "tidb-server", Path: path, Args: tidbArgs(m.dir, m.port()), Log: m.dir.File("tidb.log")}
	ctx, cancel := context.WithTimeout(ctx, tidbStartTimeout)
	defer cancel()
	if err := m.startTiDB(ctx); err != nil {
		return nil, errors.Join(err, m.dir.Remove())
	}
	return m, nil
}

// tidbArgs returns the arguments of a TiDB with its data in dir.
func tidbArgs(dir *Dir, port string) []string {
	return []string{
		"-config=" + dir.File("config.toml"),
		"-store=unistore", "-path=" + dir.File("data"), "-temp-dir=" + dir.File("tmp"),
		"-host=127.0.0.1", "-P=" + port, "-report-status=false",
		"-initialize-sql-file=" + dir.File("init.sql"), "-L=warn", "-log-slow-query=" + dir.File("slow.log"),
	}
}

func (m *MySQL) startTiDB(ctx context.Context) error {
	init := m.initSQL() + "ALTER USER 'root'@'%' ACCOUNT LOCK;\n" // it has no password
	const noSocket = "socket = \"\"\n"
	if err := errors.Join(
		os.WriteFile(m.dir.File("config.toml"), []byte(noSocket), 0o600),
		os.WriteFile(m.dir.File("init.sql"), []byte(init), 0o600),
		m.Restart(ctx),
	); err != nil {
		return err
	}
	db, err := m.open()
	if err != nil {
		return err
	}
	defer db.Close()
	m.Version, err = tidbVersion(ctx, db)
	if err != nil {
		m.Kill()
	}
	return err
}

// tidbVersion asks a server for its version. TiDB says "8.0.11-TiDB-v8.5.0": 8.0.11 is the MySQL it resembles.
func tidbVersion(ctx context.Context, db *sql.DB) (string, error) {
	var version string
	if err := db.QueryRowContext(ctx, "SELECT VERSION()").Scan(&version); err != nil {
		return "", fmt.Errorf("ask for the version: %w", err)
	}
	_, release, found := strings.Cut(version, "-TiDB-")
	if !found {
		return "", fmt.Errorf("the server is not TiDB: its version is %q", version)
	}
	return "TiDB " + release, nil
}
