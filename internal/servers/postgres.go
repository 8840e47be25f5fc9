package servers

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// PostgresOptions configures StartPostgres.
type PostgresOptions struct {
	// Relaxed trades durability for speed, and makes the server look for a deadlock soon: for tests and explorations, not
	// for measurements.
	Relaxed bool
}

// Postgres is a private PostgreSQL server.
type Postgres struct {
	Server

	password string
}

// postgresDirs match the directories of its versions on Debian, Red Hat and macOS: they are in no PATH.
var postgresDirs = []string{"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql@*/bin"}

// StartPostgres starts PostgreSQL and waits until it answers. PostgreSQL refuses to run as root: if this process is
// root, the server runs as the user postgres or nobody.
func StartPostgres(ctx context.Context, o PostgresOptions) (*Postgres, error) {
	path, version, err := findPostgres(ctx)
	if err != nil {
		return nil, err
	}
	server, err := newServer("postgres")
	if err != nil {
		return nil, err
	}
	p := &Postgres{Server: server, password: rand.Text()}
	p.Version, p.ready = "PostgreSQL "+version, p.answers
	data := p.dir.File("data")
	p.command = Command{
		Name: "postgres", Path: path, Args: p.args(data, o), Env: postgresEnv(), Log: p.dir.File("postgres.log"),
		Death: syscall.SIGQUIT, // if it is killed, shared memory stays behind
	}
	if err := p.initialize(ctx, data); err != nil {
		return nil, errors.Join(fmt.Errorf("make an empty data directory for PostgreSQL: %w", err), p.dir.Remove())
	}
	if err := p.Restart(ctx); err != nil {
		return nil, errors.Join(err, p.Stop(ctx))
	}
	return p, nil
}

// findPostgres returns the path and the version of the server in PATH, or of the newest one that is installed.
func findPostgres(ctx context.Context) (path, version string, err error) {
	names := []string{"postgres"}
	for _, dir := range postgresDirs {
		found, _ := filepath.Glob(filepath.Join(dir, "postgres"))
		slices.Reverse(found)
		names = append(names, found...)
	}
	path, found, err := program{
		names: names, called: "postgres", packages: "postgresql",
		ask: []string{"--version"}, env: postgresEnv, version: regexp.MustCompile(`\(PostgreSQL\) ([0-9.]+)`),
	}.find(ctx)
	if err != nil {
		return "", "", err
	}
	path, err = filepath.EvalSymlinks(path) // initdb is beside the program
	return path, found[1], err
}

// postgresEnv drops the variables that name another server.
func postgresEnv() []string { return envWithout("PG") }

func (p *Postgres) args(data string, o PostgresOptions) []string {
	args := []string{"-D", data, "-h", "127.0.0.1", "-p", p.port()}
	settings := []string{"unix_socket_directories=", "max_connections=200", "jit=off"}
	if o.Relaxed {
		settings = append(settings, "shared_buffers=32MB", "autovacuum=off",
			"fsync=off", "synchronous_commit=off", "full_page_writes=off",
			// A session that waits looks for a deadlock only once, after this time: of two sessions, the one that began to
			// wait last is rolled back, and soon.
			"deadlock_timeout=1ms")
	}
	for _, setting := range settings {
		args = append(args, "-c", setting)
	}
	return args
}

// initialize makes the data directory. Clients need the password, because other users of this machine can reach the
// port.
func (p *Postgres) initialize(ctx context.Context, data string) error {
	password := p.dir.File("password")
	if err := errors.Join(os.Mkdir(data, 0o700), os.WriteFile(password, []byte(p.password), 0o600)); err != nil {
		return err
	}
	if isRoot() {
		if err := p.leaveRoot(data, password); err != nil {
			return err
		}
	}
	output, err := Run(ctx, Command{
		Name: "initdb", Path: filepath.Join(filepath.Dir(p.command.Path), "initdb"), User: p.command.User, Dir: data,
		Env: postgresEnv(), Args: []string{
			"--pgdata=" + data, "--username=postgres", "--pwfile=" + password, "--auth=scram-sha-256", "--encoding=UTF8",
			"--no-locale", "--no-sync",
		},
	})
	if err != nil {
		return fmt.Errorf("%w\n%s", err, output)
	}
	return nil
}

// leaveRoot makes the server run as another user, who will own the files.
func (p *Postgres) leaveRoot(files ...string) error {
	owner, err := user.Lookup("postgres")
	if err != nil {
		owner, err = user.Lookup("nobody")
	}
	if err != nil {
		return fmt.Errorf("find a user that is not root: %w", err)
	}
	uid, badUID := strconv.Atoi(owner.Uid)
	gid, badGID := strconv.Atoi(owner.Gid)
	p.command.User = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	// The user must be able to pass through the directories above, without listing them.
	errs := []error{badUID, badGID, os.Chmod(filepath.Dir(p.dir.Path), 0o711), os.Chmod(p.dir.Path, 0o711)}
	for _, file := range files {
		errs = append(errs, os.Chown(file, uid, gid))
	}
	return errors.Join(errs...)
}

// DSN returns the address of a database of this server. The database need not exist.
func (p *Postgres) DSN(database string) string {
	return fmt.Sprintf("postgres://postgres:%s@%s/%s?sslmode=disable", p.password, p.Addr, database)
}

// CreateDatabase creates an empty database, and returns its DSN.
func (p *Postgres) CreateDatabase(ctx context.Context, name string) (dsn string, err error) {
	conn, err := pgx.Connect(ctx, p.DSN("postgres"))
	if err != nil {
		return "", err
	}
	_, err = conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize())
	return p.DSN(name), errors.Join(err, conn.Close(ctx))
}

func (p *Postgres) answers(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, p.DSN("postgres"))
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

// Stop ends the server at once, and removes its directory.
func (p *Postgres) Stop(ctx context.Context) error {
	if p.Process != nil && p.Signal(syscall.SIGQUIT) == nil {
		select {
		case <-p.Done():
		case <-time.After(10 * time.Second):
		}
	}
	return p.Server.Stop(ctx)
}
