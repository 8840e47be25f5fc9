package topology

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"stock/internal/servers"
)

// findStock returns the path of the service: the one asked for, else the one that was built together with this program,
// else one that it builds from source, as for `go run`.
func (t *Topology) findStock(ctx context.Context, asked string) (path string, err error) {
	if asked != "" {
		if path, err = exec.LookPath(asked); err != nil {
			return "", fmt.Errorf("--stock-binary: %w", err)
		}
		return path, nil
	}
	if self, err := os.Executable(); err == nil {
		if path, found := builtWith(self); found {
			return path, nil
		}
	}
	path = t.dir.File("stock")
	if output, err := buildStock(ctx, path); err != nil {
		return "", fmt.Errorf("there is no stock program from the same build beside this one, and building it failed: "+
			"run \"make build\" or give --stock-binary: %w:\n%s", err, strings.TrimSpace(string(output)))
	}
	return path, nil
}

// buildStock builds the service as `make build` does, with the revision of the working directory if that is known.
func buildStock(ctx context.Context, path string) (output []byte, err error) {
	revision, err := exec.CommandContext(ctx,
		"git", "describe", "--always", "--abbrev=40", "--dirty=+dirty", "--exclude", "*").Output()
	if err != nil {
		revision = nil
	}
	return servers.Run(ctx, servers.Command{
		Name: "go build",
		Path: "go",
		Args: []string{
			"build", "-trimpath", "-ldflags=-X main.revision=" + strings.TrimSpace(string(revision)), "-o", path,
			"stock/cmd/stock",
		},
		Env: append(os.Environ(), "CGO_ENABLED=0"),
	})
}

// sameBuild is how much older than loadtest a stock program of the same `go build` may be: go build does not rewrite a
// program that is up to date, but updates its modification time.
const sameBuild = time.Minute

// builtWith returns the stock program beside this one, unless it is from an earlier build: the lab would then measure
// old source without saying so.
func builtWith(self string) (path string, found bool) {
	path, err := exec.LookPath(filepath.Join(filepath.Dir(self), "stock"))
	if err != nil {
		return "", false
	}
	own, ownErr := os.Stat(self)
	info, err := os.Stat(path)
	return path, ownErr == nil && err == nil && own.ModTime().Sub(info.ModTime()) <= sameBuild
}

// Migrate creates the tables of the service in a database.
func (t *Topology) Migrate(ctx context.Context, dsn string) error {
	output, err := servers.Run(ctx, servers.Command{
		Name: "stock migrate",
		Path: t.StockBinary,
		Args: []string{
			"migrate", "--redis=" + strings.Join(t.Redis, ","), "--key-prefix=" + t.KeyPrefix,
			"--redis-user=" + t.Account.RedisUser, "--mysql-tls=" + t.mysqlTLS, "--redis-tls=" + t.redisTLS,
		},
		Env: stockEnv(dsn, t.Account.RedisPassword),
	})
	if err != nil {
		return fmt.Errorf("%w:\n%s", err, strings.TrimSpace(string(output)))
	}
	return nil
}

// stockEnv passes the DSN and the password of Redis in the environment, because other users of the host can read a
// command line. It drops this process's own STOCK_ variables, which configure another service.
func stockEnv(dsn, redisPassword string) []string {
	env := []string{"STOCK_MYSQL_DSN=" + dsn, "STOCK_REDIS_PASSWORD=" + redisPassword}
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "STOCK_") {
			env = append(env, entry)
		}
	}
	return env
}
