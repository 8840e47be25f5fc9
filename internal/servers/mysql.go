package servers

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"

	"github.com/go-sql-driver/mysql"
)

// MySQLOptions configures StartMySQL. The zero value is as durable as MySQL ships.
type MySQLOptions struct {
	// Relaxed trades durability for speed: nothing is flushed at commit and no binary log is written. A crash of the
	// machine loses data, a crash of the server may. For tests, never for measurements.
	Relaxed bool
	Args    []string // more arguments, such as "--innodb-lock-wait-timeout=1"
}

// MySQL is a private MySQL or MariaDB server.
type MySQL struct {
	Addr     string            // host:port
	Version  string            // "MySQL 8.0.36", "MariaDB 10.11.6"
	Settings map[string]string // of the running server: how durable, how isolated
	*Process

	password string
	command  Command
	dir      *Dir
}

// settings are the variables that a reader of measurements needs to know; a server has most of them.
var settings = []string{
	"innodb_flush_log_at_trx_commit", "innodb_flush_method", "innodb_doublewrite", "innodb_buffer_pool_size",
	"innodb_lock_wait_timeout", "log_bin", "sync_binlog", "binlog_format", "max_connections",
	"transaction_isolation", "tx_isolation",
}

// StartMySQL starts mysqld, or mariadbd where there is none, and waits until it answers.
//
// The first start of a version makes an empty data directory, which takes seconds. It is kept in the user's cache
// directory, and later starts copy it.
func StartMySQL(ctx context.Context, o MySQLOptions) (*MySQL, error) {
	program, err := findMySQL(ctx)
	if err != nil {
		return nil, err
	}
	template, err := program.template(ctx)
	if err != nil {
		return nil, err
	}
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	dir, err := NewDir("mysql")
	if err != nil {
		return nil, err
	}
	m := &MySQL{
		Addr:     net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
		Version:  program.version,
		password: rand.Text(),
		dir:      dir,
	}
	m.command = Command{
		Name: program.name(),
		Path: program.path,
		Args: append(program.args(dir, port, o.Relaxed), o.Args...),
		Log:  dir.File("mysql.log"),
	}
	if err := errors.Join(
		os.CopyFS(dir.File("data"), os.DirFS(template)),
		os.Mkdir(dir.File("tmp"), 0o700),
		os.WriteFile(dir.File("init.sql"), []byte(m.initSQL()), 0o600),
	); err != nil {
		return nil, errors.Join(fmt.Errorf("lay out the directory of %s: %w", program.name(), err), dir.Remove())
	}
	if err := m.Restart(ctx); err != nil {
		return nil, errors.Join(err, dir.Remove())
	}
	return m, nil
}

// initSQL makes the one account that may connect over TCP. It has a password, as the server may run as root and other
// users of this machine reach the port. The server reads one statement a line.
func (m *MySQL) initSQL() string {
	return "CREATE USER IF NOT EXISTS 'root'@'127.0.0.1' IDENTIFIED BY '" + m.password + "';\n" +
		"GRANT ALL PRIVILEGES ON *.* TO 'root'@'127.0.0.1' WITH GRANT OPTION;\n"
}

// MySQLConnections is how many connections a server takes at a time: two replicas of 64, the lab's own, and room.
const MySQLConnections = 512

func (p mysqlProgram) args(dir *Dir, port int, relaxed bool) []string {
	args := append(p.common(), // "--no-defaults" has to be the first
		"--datadir="+dir.File("data"),
		"--socket="+dir.File("mysql.sock"),
		"--pid-file="+dir.File("mysql.pid"),
		"--tmpdir="+dir.File("tmp"),
		"--init-file="+dir.File("init.sql"),
		"--secure-file-priv="+dir.File("tmp"),
		"--bind-address=127.0.0.1",
		"--port="+strconv.Itoa(port),
		"--skip-name-resolve",
		"--server-id=1",
		"--max-connections="+strconv.Itoa(MySQLConnections),
	)
	if p.mariaDB {
		args = append(args, "--binlog-format=ROW") // as MySQL ships
	} else {
		args = append(args, "--mysqlx=OFF") // listens on a fixed port
	}
	if relaxed {
		return append(args, "--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=0", "--skip-log-bin")
	}
	// MySQL ships so; MariaDB ships without a binary log.
	return append(args, "--innodb-flush-log-at-trx-commit=1", "--log-bin="+dir.File("data/binlog"), "--sync-binlog=1")
}

// DSN returns the data source name of a database of this server, for go-sql-driver/mysql. The database need not exist;
// where empty, none is selected.
func (m *MySQL) DSN(database string) string {
	c := mysql.NewConfig()
	c.Net, c.Addr, c.DBName = "tcp", m.Addr, database
	c.User, c.Passwd = "root", m.password
	c.ParseTime = true
	c.InterpolateParams = true // one round trip a statement
	c.ClientFoundRows = true   // an UPDATE counts the rows that it found, also those that it left as they were
	return c.FormatDSN()
}

// CreateDatabase creates an empty database and returns its DSN.
func (m *MySQL) CreateDatabase(ctx context.Context, database string) (dsn string, err error) {
	if err := m.exec(ctx, "CREATE DATABASE "+quote(database)+" CHARACTER SET utf8mb4"); err != nil {
		return "", fmt.Errorf("create database %s: %w", database, err)
	}
	return m.DSN(database), nil
}

// DropDatabase drops a database with all that is in it.
func (m *MySQL) DropDatabase(ctx context.Context, database string) error {
	if err := m.exec(ctx, "DROP DATABASE "+quote(database)); err != nil {
		return fmt.Errorf("drop database %s: %w", database, err)
	}
	return nil
}

func quote(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

func (m *MySQL) exec(ctx context.Context, statement string) error {
	db, err := m.open()
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.ExecContext(ctx, statement)
	return err
}

// open keeps the driver from writing to stderr, which it does for every connection that fails.
func (m *MySQL) open() (*sql.DB, error) {
	config, err := mysql.ParseDSN(m.DSN(""))
	if err != nil {
		return nil, err
	}
	config.Logger = &mysql.NopLogger{}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

// Restart kills the server if it runs (SIGKILL), and starts it on the same port and the same data.
func (m *MySQL) Restart(ctx context.Context) error {
	if m.Process != nil {
		m.Kill()
	}
	process, err := Start(m.command)
	if err != nil {
		return err
	}
	m.Process = process
	if err := m.ready(ctx); err != nil {
		process.Kill()
		return err
	}
	return nil
}

func (m *MySQL) ready(ctx context.Context) error {
	db, err := m.open()
	if err != nil {
		return err
	}
	defer db.Close()
	if err := m.Await(ctx, func(ctx context.Context) error {
		_, err := db.ExecContext(ctx, "SELECT 1")
		return err
	}); err != nil {
		return err
	}
	m.Settings, err = readSettings(ctx, db)
	if err != nil {
		return fmt.Errorf("read the settings of %s: %w", m.Name, err)
	}
	return nil
}

func readSettings(ctx context.Context, db *sql.DB) (map[string]string, error) {
	rows, err := db.QueryContext(ctx, "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('"+strings.Join(settings, "','")+"')")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	values := map[string]string{}
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return nil, err
		}
		values[name] = value
	}
	return values, rows.Err()
}

// Stop ends the server and removes its directory.
func (m *MySQL) Stop(ctx context.Context) error {
	return errors.Join(m.Process.Stop(ctx), m.dir.Remove())
}

// mysqlProgram is an installed MySQL or MariaDB server.
type mysqlProgram struct {
	path    string
	version string // as in MySQL.Version
	mariaDB bool
}

var mysqlVersion = regexp.MustCompile(`Ver ([0-9]+(?:\.[0-9]+)*)`)

func findMySQL(ctx context.Context) (mysqlProgram, error) {
	path, found := find("mysqld", "mariadbd")
	if !found {
		return mysqlProgram{}, notInstalled("mysqld or mariadbd", "mariadb-server-core")
	}
	answer, err := exec.CommandContext(ctx, path, "--no-defaults", "--version").Output()
	if err != nil {
		return mysqlProgram{}, fmt.Errorf("ask %s for its version: %w", path, err)
	}
	match := mysqlVersion.FindSubmatch(answer)
	if match == nil {
		return mysqlProgram{}, fmt.Errorf("%s is no MySQL server: its version is %q", path, strings.TrimSpace(string(answer)))
	}
	p := mysqlProgram{path: path, mariaDB: strings.Contains(string(answer), "MariaDB")} // often installed as mysqld, too
	p.version = map[bool]string{true: "MariaDB ", false: "MySQL "}[p.mariaDB] + string(match[1])
	return p, nil
}

func (p mysqlProgram) name() string {
	if p.mariaDB {
		return "mariadbd"
	}
	return "mysqld"
}

// common are the arguments of every run.
func (p mysqlProgram) common() []string {
	args := []string{"--no-defaults"}
	if isRoot() {
		args = append(args, "--user=root") // refuses to run as root otherwise
	}
	return args
}
