package tenant

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"stock/internal/access"
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
	db            *sql.DB
	lock          *sql.Conn // holds the named lock of the database, until it is closed
}

// marker is a table by which a database is known to be the lab's. Only the lab creates it.
const marker = "loadtest_marker"

// MySQL's error numbers.
const (
	errAccessDenied   = 1045 // wrong user or password
	errDatabaseDenied = 1044
	errTableDenied    = 1142
	errNeedsPrivilege = 1227
	errNoSuchTable    = 1146
)

// CreateDatabase creates a database on a server that somebody else uses. A database of that name is replaced if a lab
// created it that has died, and left alone otherwise.
func CreateDatabase(ctx context.Context, dsn string, account oracle.Account, name string) (*Database, error) {
	config, err := account.MySQLConfig(dsn)
	if err != nil {
		return nil, err
	}
	if config.DBName != "" {
		return nil, fmt.Errorf("the MySQL DSN names database %s: leave the name out, as in user:password@tcp(%s)/; the lab "+
			"uses no database that exists, and creates %s", config.DBName, config.Addr, name)
	}
	config.InterpolateParams, config.ParseTime = true, true
	config.Logger = &mysql.NopLogger{} // the driver also returns what it logs as errors
	if config.Timeout == 0 {
		config.Timeout = 5 * time.Second
	}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, fmt.Errorf("MySQL DSN: %w", err)
	}
	d := &Database{name: name, address: config.Addr, db: sql.OpenDB(connector)}
	if err := d.connect(ctx, config.User); err != nil {
		return nil, errors.Join(err, d.closeConnections())
	}
	// The driver closes the connection of a statement that is interrupted, so that nothing could be undone.
	creating, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	if err := d.create(creating); err != nil {
		return nil, errors.Join(err, d.closeConnections())
	}
	if ctx.Err() != nil {
		return nil, errors.Join(ctx.Err(), AsLeft(d.Remove(creating)))
	}
	own := config.Clone()
	own.DBName, own.Logger = name, nil
	d.DSN = own.FormatDSN()
	return d, nil
}

func (d *Database) connect(ctx context.Context, user string) (err error) {
	if d.lock, err = d.db.Conn(ctx); err != nil {
		if numbered(err, errAccessDenied) {
			return fmt.Errorf("MySQL at %s refuses %s: check user and password of the MySQL DSN, and whether "+
				"the account requires TLS (--mysql-tls) or a certificate", d.address, user)
		}
		return fmt.Errorf("connect to MySQL at %s: is it running? %w", d.address, access.Explain(err))
	}
	if err := d.measure(ctx); err != nil {
		return fmt.Errorf("MySQL at %s: %w", d.address, err)
	}
	return nil
}

func (d *Database) create(ctx context.Context) error {
	if err := d.acquire(ctx); err != nil {
		return err
	}
	if err := d.dropLeftover(ctx); err != nil {
		return err
	}
	if err := d.exec(ctx, "CREATE DATABASE "+d.quoted()+" CHARACTER SET utf8mb4"); err != nil {
		return d.denied(ctx, fmt.Errorf("create database %s on MySQL at %s: %w", d.name, d.address, err))
	}
	host, _ := os.Hostname()
	err := d.exec(ctx, "CREATE TABLE "+d.markerTable()+" (created_by VARCHAR(255), created_at DATETIME)")
	if err == nil {
		by := fmt.Sprintf("loadtest, process %d on %s", os.Getpid(), host)
		err = d.exec(ctx, "INSERT INTO "+d.markerTable()+" VALUES (?, UTC_TIMESTAMP())", by)
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
		d.Free = min(d.Free, perUser-ofLab)
	}
	return nil
}

// acquire takes the named lock that tells other labs that this one is alive. The server frees it when the connection
// ends, so also when this process dies. The connection is idle during a run: the server must not end it.
func (d *Database) acquire(ctx context.Context) error {
	var granted sql.NullInt64
	_, err := d.lock.ExecContext(ctx, "SET SESSION wait_timeout = 604800, lock_wait_timeout = 10")
	if err == nil {
		err = d.lock.QueryRowContext(ctx, "SELECT GET_LOCK(?, 1)", "loadtest:"+d.name).Scan(&granted)
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
		return fmt.Errorf("database %s on MySQL at %s exists, and no lab has created it: it is left alone; choose "+
			"another --name", d.name, d.address)
	case err != nil:
		return fmt.Errorf("look into database %s on MySQL at %s: %w", d.name, d.address, err)
	}
	return d.drop(ctx)
}

// Remove drops the database and frees its name. It must be called after all users of the database have ended.
func (d *Database) Remove(ctx context.Context) error {
	err := d.drop(ctx)
	if err != nil {
		// The server may have ended the connection, and with it the lock: somebody else may have the name by now.
		if conn, connErr := d.db.Conn(ctx); connErr == nil {
			d.lock.Close()
			d.lock = conn
			if err = d.acquire(ctx); err == nil {
				err = d.dropLeftover(ctx)
			}
		}
	}
	return errors.Join(err, d.closeConnections())
}

func (d *Database) drop(ctx context.Context) error {
	if err := d.exec(ctx, "DROP DATABASE IF EXISTS "+d.quoted()); err != nil {
		return fmt.Errorf("database %s is still on MySQL at %s: remove it with DROP DATABASE %s, or run the lab with the "+
			"same --name again: %w", d.name, d.address, d.quoted(), err)
	}
	return nil
}

// exec uses the connection that holds the lock: as long as it works, nobody else has the name.
func (d *Database) exec(ctx context.Context, statement string, args ...any) error {
	_, err := d.lock.ExecContext(ctx, statement, args...)
	return err
}

func (d *Database) closeConnections() error {
	if d.lock != nil {
		d.lock.Close() // the pool closes the connection below, which frees the lock
	}
	return d.db.Close()
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

// quoted needs no escapes: see CheckName.
func (d *Database) quoted() string { return "`" + d.name + "`" }

func (d *Database) markerTable() string { return d.quoted() + "." + marker }

// numbered reports whether an error is one of MySQL's with one of the numbers.
func numbered(err error, numbers ...uint16) bool {
	reply, ok := errors.AsType[*mysql.MySQLError](err)
	return ok && slices.Contains(numbers, reply.Number)
}
