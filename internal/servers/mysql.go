package servers

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/go-sql-driver/mysql"
)

// MySQLOptions configures StartMySQL. The zero value is as durable as MySQL is by default.
type MySQLOptions struct {
	// Relaxed trades durability for speed: commits are not flushed and no binary log is written. If the machine or the
	// server crashes, data may be lost. For tests, never for measurements.
	Relaxed bool
	// Disk is the size in bytes of a file system in memory that holds the data directory, to fill it up; none if 0. It
	// needs Linux and root. An empty server needs about 40 MB.
	Disk int64
	// Args are additional arguments. They override those of this package: "--transaction-isolation=READ-COMMITTED",
	// "--innodb-flush-log-at-trx-commit=0".
	Args []string
}

// MySQL is a private MySQL or MariaDB server.
type MySQL struct {
	Server

	Settings map[string]string // system variables that matter for durability and isolation
	Data     string            // its data directory
	password string
}

// settings are the system variables to report with measurements. No server has all of them.
var settings = []string{
	"innodb_flush_log_at_trx_commit", "innodb_flush_method", "innodb_doublewrite", "innodb_buffer_pool_size",
	"innodb_lock_wait_timeout", "log_bin", "sync_binlog", "binlog_format", "max_connections",
	"transaction_isolation", "tx_isolation",
}

// StartMySQL starts mysqld, or mariadbd if mysqld is not installed, and waits until it answers.
//
// The first start of a version makes an empty data directory, which takes seconds. Later starts copy it from the user's
// cache directory.
func StartMySQL(ctx context.Context, o MySQLOptions) (*MySQL, error) {
	program, err := findMySQL(ctx)
	if err != nil {
		return nil, err
	}
	template, err := program.template(ctx)
	if err != nil {
		return nil, err
	}
	m, err := newMySQL("mysql", mounted)
	if err != nil {
		return nil, err
	}
	m.Version = program.version
	dir := m.dir
	m.command = Command{
		Name: program.name(),
		Path: program.path,
		Args: append(program.args(dir, m.port(), o), o.Args...),
		Log:  dir.File("mysql.log"),
	}
	if o.Disk > 0 {
		if err := mount(m.Data, o.Disk); err != nil {
			return nil, errors.Join(err, dir.Remove())
		}
	}
	if err := errors.Join(
		os.CopyFS(m.Data, os.DirFS(template)),
		os.Mkdir(dir.File("tmp"), 0o700),
		os.WriteFile(dir.File("init.sql"), []byte(m.initSQL()), 0o600),
	); err != nil {
		return nil, errors.Join(fmt.Errorf("prepare the directory of %s: %w", program.name(), err), dir.Remove())
	}
	if err := m.Restart(ctx); err != nil {
		return nil, errors.Join(err, dir.Remove())
	}
	return m, nil
}

// newMySQL chooses a directory, a free port and a password for a server that is not yet started. name is part of the
// directory's name; data is the name of the data directory in it.
func newMySQL(name, data string) (*MySQL, error) {
	server, err := newServer(name)
	if err != nil {
		return nil, err
	}
	return &MySQL{Server: server, Data: server.dir.File(data), password: rand.Text()}, nil
}

// initSQL creates the only account that may connect over TCP. It has a password, because the server may run as root and
// other users of this machine can reach the port. The server expects one statement per line.
func (m *MySQL) initSQL() string {
	return "CREATE USER IF NOT EXISTS 'root'@'127.0.0.1' IDENTIFIED BY '" + m.password + "';\n" +
		"GRANT ALL PRIVILEGES ON *.* TO 'root'@'127.0.0.1' WITH GRANT OPTION;\n"
}

// MySQLConnections is the limit of concurrent connections of a server: 65 for each of two replicas, and the rest for
// the lab.
const MySQLConnections = 512

func (p mysqlProgram) args(dir *Dir, port string, o MySQLOptions) []string {
	args := append(mysqlArgs(),
		"--datadir="+dir.File(mounted),
		"--socket="+dir.File("mysql.sock"),
		"--pid-file="+dir.File("mysql.pid"),
		"--tmpdir="+dir.File("tmp"),
		"--init-file="+dir.File("init.sql"),
		"--secure-file-priv="+dir.File("tmp"),
		"--bind-address=127.0.0.1",
		"--port="+port,
		"--skip-name-resolve",
		"--server-id=1",
		"--max-connections="+strconv.Itoa(MySQLConnections),
	)
	if p.mariaDB {
		args = append(args, "--binlog-format=ROW") // the default of MySQL
	} else {
		args = append(args, "--mysqlx=OFF") // it would listen on a fixed port
	}
	if o.Disk > 0 {
		args = append(args, "--innodb-log-file-size=8M") // the default of MariaDB is 96M
	}
	if o.Relaxed {
		return append(args, "--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=0", "--skip-log-bin")
	}
	// The defaults of MySQL. By default, MariaDB writes no binary log.
	return append(args, "--innodb-flush-log-at-trx-commit=1", "--log-bin="+dir.File(mounted)+"/binlog", "--sync-binlog=1")
}

// DSN returns the data source name of a database of this server for go-sql-driver/mysql. The database need not exist.
// If the name is empty, no database is selected.
func (m *MySQL) DSN(database string) string {
	c := mysql.NewConfig()
	c.Net, c.Addr, c.DBName = "tcp", m.Addr, database
	c.User, c.Passwd = "root", m.password
	c.ParseTime = true
	c.InterpolateParams = true // one round trip per statement
	c.MultiStatements = true   // a whole transaction in one message
	c.ClientFoundRows = true   // an UPDATE counts the rows that match, not only those that change
	return c.FormatDSN()
}

// CreateDatabase creates an empty database and returns its DSN.
func (m *MySQL) CreateDatabase(ctx context.Context, database string) (dsn string, err error) {
	if err := m.exec(ctx, "CREATE DATABASE "+quote(database)+" CHARACTER SET utf8mb4"); err != nil {
		return "", fmt.Errorf("create database %s: %w", database, err)
	}
	return m.DSN(database), nil
}

// DropDatabase drops a database.
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

// open silences the driver, which would write to stderr whenever a connection fails.
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

// Restart kills the server if it is running (SIGKILL), and starts it on the same port with the same data.
func (m *MySQL) Restart(ctx context.Context) error {
	db, err := m.open()
	if err != nil {
		return err
	}
	defer db.Close()
	ready := func(ctx context.Context) error {
		_, err := db.ExecContext(ctx, "SELECT 1")
		return err
	}
	if err := Restart(ctx, &m.Process, m.command, ready); err != nil {
		return err
	}
	m.Settings, err = readSettings(ctx, db)
	if err != nil {
		m.Kill()
		return fmt.Errorf("read the settings of %s: %w", m.Name, err)
	}
	return nil
}

func readSettings(ctx context.Context, db *sql.DB) (map[string]string, error) {
	names := "'" + strings.Join(settings, "','") + "'"
	rows, err := db.QueryContext(ctx, "SHOW GLOBAL VARIABLES WHERE Variable_name IN ("+names+")")
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

// mysqlProgram is an installed MySQL or MariaDB server.
type mysqlProgram struct {
	path    string
	version string // "MySQL 8.0.36", "MariaDB 10.11.6"
	mariaDB bool
}

var mysqlPrograms = program{
	names: []string{"mysqld", "mariadbd"}, called: "mysqld or mariadbd", packages: "mariadb-server-core",
	ask: []string{"--no-defaults", "--version"}, version: regexp.MustCompile(`Ver ([0-9]+(?:\.[0-9]+)*)(.*MariaDB)?`),
}

func findMySQL(ctx context.Context) (mysqlProgram, error) {
	path, version, err := mysqlPrograms.find(ctx)
	switch {
	case err != nil:
		return mysqlProgram{}, err
	case version[2] != "": // often installed as mysqld
		return mysqlProgram{path: path, version: "MariaDB " + version[1], mariaDB: true}, nil
	}
	return mysqlProgram{path: path, version: "MySQL " + version[1]}, nil
}

func (p mysqlProgram) name() string {
	if p.mariaDB {
		return "mariadbd"
	}
	return "mysqld"
}

// mysqlArgs returns the arguments of every run. They must come first.
func mysqlArgs() []string {
	args := []string{"--no-defaults"}
	if isRoot() {
		args = append(args, "--user=root") // without it, the server refuses to run as root
	}
	return args
}
