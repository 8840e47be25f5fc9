package tenant

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"stock/loadtest/internal/oracle"
)

// Database is a database of the lab's own.
type Database struct {
	DSN     string // of the database, with the password of the account, if any, and without settings of TLS
	Version string // "10.11.6-MariaDB"
	// Isolation is the name of the system variable that has the isolation level, and its value.
	Isolation map[string]string
	// Free is how many more connections the server accepts from the account.
	Free int

	name, address string
	createdBy     string // in the marker: no other lab has the same
	db            *sql.DB
	lock          *sql.Conn // holds the named lock of the database, until it is closed
	claim
}

// marker is a table by which a database is known to be the lab's. Only the lab creates it.
const marker = "loadtest_marker"

// MySQL's error numbers.
const (
	errAccessDenied   = 1045 // wrong user or password
	errDatabaseDenied = 1044
	errTableDenied    = 1142
	errNeedsPrivilege = 1227
	errNoSuchDatabase = 1049
	errNoSuchTable    = 1146
)

// removeTime is how long it may take to remove a database.
const removeTime = 20 * time.Second

// CreateDatabase creates a database on a server that somebody else uses. A database of that name is replaced if a lab
// created it that has died, and left alone otherwise.
func CreateDatabase(ctx context.Context, dsn string, account oracle.Account, name string) (*Database, error) {
	config, err := account.MySQLConfig(dsn)
	if err != nil {
		return nil, err
	}
	if err := checkServer(config, name); err != nil {
		return nil, err
	}
	d, err := open(config, name)
	if err != nil {
		return nil, err
	}
	if err := d.connect(ctx, config.User); err != nil {
		d.closeConnections()
		return nil, err
	}
	// If a statement is interrupted, the driver closes the connection, and what was created could not be removed.
	creating, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	if err := d.create(creating); err != nil {
		d.closeConnections()
		return nil, err
	}
	d.keep(ctx, d.hold)
	if ctx.Err() != nil {
		return nil, errors.Join(ctx.Err(), AsLeft(d.Remove(creating)))
	}
	return d, nil
}

// checkServer refuses what a DSN may have, and a lab that creates its database cannot use. It does not quote the name
// of a database, which may be a misplaced password.
func checkServer(config *mysql.Config, name string) error {
	if config.Net != "tcp" {
		return errors.New("the MySQL DSN names a socket, and fault scenarios cut connections of TCP: write it as " +
			"user:password@tcp(127.0.0.1:3306)/")
	}
	if config.DBName != "" {
		return fmt.Errorf("the MySQL DSN names a database: leave the name out, as in user:password@tcp(%s)/; the lab uses "+
			"no database that exists, and creates %s", config.Addr, name)
	}
	return nil
}

// open returns a database that does not exist yet. It does not connect.
func open(config *mysql.Config, name string) (*Database, error) {
	config.InterpolateParams, config.ParseTime = true, true
	own := config.Clone()
	own.DBName = name
	config.Logger = &mysql.NopLogger{} // the driver also returns what it logs as errors
	if config.Timeout == 0 {
		config.Timeout = 5 * time.Second
	}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, fmt.Errorf("MySQL DSN: %w", err)
	}
	host, _ := os.Hostname()
	d := &Database{
		DSN: own.FormatDSN(), name: name, address: config.Addr, db: sql.OpenDB(connector),
		createdBy: fmt.Sprintf("loadtest, process %d on %s, %s", os.Getpid(), host, rand.Text()),
	}
	d.db.SetMaxIdleConns(-1) // a connection that is closed ends at once, and frees its lock
	return d, nil
}

func (d *Database) connect(ctx context.Context, user string) (err error) {
	connecting, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	if d.lock, err = d.db.Conn(connecting); err != nil {
		if numbered(err, errAccessDenied) {
			return fmt.Errorf("MySQL at %s refuses %s: check user and password of the MySQL DSN (the password may be in "+
				"LOADTEST_MYSQL_PASSWORD), the host that the account is for, and whether it requires TLS (--mysql-tls) or a "+
				"certificate", d.address, user)
		}
		if connecting.Err() != nil && ctx.Err() == nil {
			return fmt.Errorf("MySQL at %s: no answer in %v: is this MySQL's port?", d.address, connectTime)
		}
		return fmt.Errorf("connect to MySQL at %s: %w", d.address, unreachable(err))
	}
	if err := d.measure(ctx); err != nil {
		return fmt.Errorf("MySQL at %s: %w", d.address, err)
	}
	return nil
}

func (d *Database) create(ctx context.Context) error {
	if err := d.acquire(ctx, d.lock); err != nil {
		return err
	}
	if err := d.dropLeftover(ctx); err != nil {
		return err
	}
	if err := d.exec(ctx, "CREATE DATABASE "+d.quoted()+" CHARACTER SET utf8mb4"); err != nil {
		return d.denied(ctx, fmt.Errorf("create database %s on MySQL at %s: %w", d.name, d.address, err))
	}
	err := d.exec(ctx, "CREATE TABLE "+d.markerTable()+" (created_by VARCHAR(255), created_at DATETIME)")
	if err == nil {
		err = d.exec(ctx, "INSERT INTO "+d.markerTable()+" VALUES (?, UTC_TIMESTAMP())", d.createdBy)
	}
	if err != nil {
		err = d.denied(ctx, fmt.Errorf("create a table in database %s on MySQL at %s: %w", d.name, d.address, err))
		return errors.Join(err, d.drop(context.WithoutCancel(ctx)))
	}
	return nil
}

// measure reads the version, and how many connections are left.
func (d *Database) measure(ctx context.Context) error {
	var most, perUser int
	err := d.lock.QueryRowContext(ctx, "SELECT VERSION(), @@max_connections, @@max_user_connections").
		Scan(&d.Version, &most, &perUser)
	if err != nil {
		return err
	}
	if strings.Contains(d.Version, "-TiDB-") {
		return errors.New("it is TiDB, which does not say how many connections are free: let the lab start one with " +
			"--tidb, or start the service on yours, and use loadtest run --target")
	}
	var name string
	var used int
	if err := d.lock.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'Threads_connected'").Scan(&name, &used); err != nil {
		return err
	}
	d.Isolation = map[string]string{}
	var level string
	const isolation = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('transaction_isolation', 'tx_isolation')"
	if err := d.lock.QueryRowContext(ctx, isolation).Scan(&name, &level); err != nil {
		return err
	}
	d.Isolation[name] = level
	const ofLab = 8 // the oracle's, this one, and those of migrations and fault scenarios
	d.Free = most - used - ofLab
	if perUser > 0 {
		// Without the privilege PROCESS, an account sees its own connections, which are those that count here.
		const others = "SELECT COUNT(*) FROM information_schema.processlist " +
			"WHERE user = SUBSTRING_INDEX(CURRENT_USER(), '@', 1) AND id <> CONNECTION_ID()"
		if err := d.lock.QueryRowContext(ctx, others).Scan(&used); err != nil {
			return err
		}
		d.Free = min(d.Free, perUser-used-ofLab)
	}
	return nil
}

// acquire takes the named lock that tells other labs that this one is alive. The server frees it when the connection
// ends, so also when this process dies, or when nothing has been heard of it for a minute.
func (d *Database) acquire(ctx context.Context, conn *sql.Conn) error {
	var granted sql.NullInt64
	_, err := conn.ExecContext(ctx, "SET SESSION wait_timeout = 60, lock_wait_timeout = 10")
	if err == nil {
		err = conn.QueryRowContext(ctx, "SELECT GET_LOCK(?, 1)", d.lockName()).Scan(&granted)
	}
	switch {
	case err != nil:
		return fmt.Errorf("lock the name %s on MySQL at %s: %w", d.name, d.address, err)
	case granted.Int64 != 1:
		return fmt.Errorf("another lab that is running uses database %s on MySQL at %s: wait until it ends, or choose "+
			"another --name", d.name, d.address)
	}
	return nil
}

// hold makes sure that this lab has the named lock. If its connection has ended, it takes the lock again with a new
// one. It returns a lostError if somebody else has replaced the database meanwhile.
func (d *Database) hold(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var held sql.NullBool
	err := d.lock.QueryRowContext(ctx, "SELECT IS_USED_LOCK(?) = CONNECTION_ID()", d.lockName()).Scan(&held)
	if err == nil && held.Bool {
		return nil
	}
	conn, err := d.db.Conn(ctx)
	if err != nil {
		return err
	}
	// If the server has not noticed that the old connection has ended, the lock cannot be had yet.
	locked := d.acquire(ctx, conn)
	own, err := d.marked(ctx, conn)
	if err == nil && !own {
		err = lostError{fmt.Errorf("another lab, or somebody else, has replaced database %s on MySQL at %s while this lab "+
			"was not connected: it is left alone, and this run is worthless", d.name, d.address)}
	}
	if err = cmp.Or(err, locked); err != nil {
		conn.Close()
		return err
	}
	d.lock.Close()
	d.lock = conn
	return nil
}

// marked reports whether the database is the one that this lab has created.
func (d *Database) marked(ctx context.Context, conn *sql.Conn) (own bool, err error) {
	var rows int
	query := "SELECT COUNT(*) FROM " + d.markerTable() + " WHERE created_by = ?"
	err = conn.QueryRowContext(ctx, query, d.createdBy).Scan(&rows)
	if numbered(err, errNoSuchTable, errNoSuchDatabase) {
		return false, nil
	}
	return rows > 0, err
}

// dropLeftover drops the database if a lab left it behind that has died.
func (d *Database) dropLeftover(ctx context.Context) error {
	const query = "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = ?"
	var exists int
	if err := d.lock.QueryRowContext(ctx, query, d.name).Scan(&exists); err != nil {
		return fmt.Errorf("look for database %s on MySQL at %s: %w", d.name, d.address, err)
	}
	if exists == 0 {
		return nil
	}
	var rows int
	err := d.lock.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+d.markerTable()).Scan(&rows)
	switch {
	case numbered(err, errNoSuchTable):
		return fmt.Errorf("database %s on MySQL at %s exists, and has no marker of a lab: it is left alone; choose another "+
			"--name, or remove it with DROP DATABASE %s if nobody needs it (a lab that is killed at its start leaves an "+
			"empty one)", d.name, d.address, d.quoted())
	case err != nil:
		return fmt.Errorf("look into database %s on MySQL at %s: %w", d.name, d.address, err)
	}
	return d.drop(ctx)
}

// Remove drops the database and frees its name. It must be called after all users of the database have ended. A
// database that somebody else has put in its place is left alone.
func (d *Database) Remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, removeTime)
	defer cancel()
	d.end()
	err := d.hold(ctx) // the server may have ended the connection, and with it the lock
	switch {
	case err == nil:
		err = d.drop(ctx)
	case !isLost(err):
		err = d.remains(err)
	}
	d.closeConnections()
	return err
}

func (d *Database) drop(ctx context.Context) error {
	if err := d.exec(ctx, "DROP DATABASE IF EXISTS "+d.quoted()); err != nil {
		return d.remains(err)
	}
	return nil
}

// remains adds to an error that the database is still there, and what to do.
func (d *Database) remains(err error) error {
	return fmt.Errorf("database %s is still on MySQL at %s: remove it with DROP DATABASE %s, or run the lab with the "+
		"same --name again: %w", d.name, d.address, d.quoted(), err)
}

// exec uses the connection that holds the lock: as long as it works, nobody else has the name.
func (d *Database) exec(ctx context.Context, statement string, args ...any) error {
	_, err := d.lock.ExecContext(ctx, statement, args...)
	return err
}

// closeConnections reports no error: nothing is lost with a connection that is broken already.
func (d *Database) closeConnections() {
	if d.lock != nil {
		d.lock.Close()
	}
	d.db.Close()
}

// denied adds to an error of a missing privilege how it is granted.
func (d *Database) denied(ctx context.Context, err error) error {
	if !numbered(err, errDatabaseDenied, errTableDenied, errNeedsPrivilege) {
		return err
	}
	account := "the account"
	if rows := d.lock.QueryRowContext(ctx, "SELECT CURRENT_USER()"); rows.Scan(&account) == nil {
		user, host, _ := strings.Cut(account, "@")
		account = "'" + user + "'@'" + host + "'"
	}
	pattern := strings.ReplaceAll(d.quoted(), "_", `\_`) // in a GRANT, _ stands for any character
	return fmt.Errorf("%w; an administrator can grant it: GRANT ALL ON %s.* TO %s", err, pattern, account)
}

func (d *Database) lockName() string { return "loadtest:" + d.name }

// quoted needs no escapes: see CheckName.
func (d *Database) quoted() string { return "`" + d.name + "`" }

func (d *Database) markerTable() string { return d.quoted() + "." + marker }

// numbered reports whether an error is one of MySQL's with one of the numbers.
func numbered(err error, numbers ...uint16) bool {
	reply, ok := errors.AsType[*mysql.MySQLError](err)
	return ok && slices.Contains(numbers, reply.Number)
}
