package tenant

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
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
	db            *sql.DB
}

// MySQL's error numbers.
const (
	errAccessDenied   = 1045 // wrong user or password
	errDatabaseDenied = 1044
)

// dropTime is how long it may take to create or to drop a database.
const dropTime = 20 * time.Second

// CreateDatabase creates a database on a server that somebody else uses.
func CreateDatabase(ctx context.Context, dsn string, account oracle.Account, name string) (*Database, error) {
	config, err := account.MySQLConfig(dsn)
	if err != nil {
		return nil, err
	}
	if err := checkServer(config); err != nil {
		return nil, err
	}
	d, err := open(config, name)
	if err != nil {
		return nil, err
	}
	err = d.connect(ctx, config.User)
	if err == nil {
		err = d.create(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, d.db.Close())
	}
	return d, nil
}

// checkServer refuses what a DSN may have, and a lab that creates its database cannot use. It does not quote the name
// of a database, which may be a misplaced password.
func checkServer(config *mysql.Config) error {
	if config.Net != "tcp" {
		return errors.New("the MySQL DSN names a socket, and fault scenarios cut connections of TCP: write it as " +
			"user:password@tcp(127.0.0.1:3306)/")
	}
	if config.DBName != "" {
		return fmt.Errorf("the MySQL DSN names a database: leave the name out, as in user:password@tcp(%s)/; the lab uses "+
			"no database that exists, and creates one", config.Addr)
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
		config.Timeout = connectTime
	}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, fmt.Errorf("MySQL DSN: %w", err)
	}
	d := &Database{DSN: own.FormatDSN(), name: name, address: config.Addr, db: sql.OpenDB(connector)}
	d.db.SetMaxOpenConns(1)
	d.db.SetMaxIdleConns(-1) // the connections are for the replicas
	return d, nil
}

func (d *Database) connect(ctx context.Context, user string) error {
	connecting, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	if err := d.db.PingContext(connecting); err != nil {
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

// create is not interrupted, because it would not be known then whether the database is there.
func (d *Database) create(ctx context.Context) error {
	err := d.exec(ctx, "CREATE DATABASE "+d.name+" CHARACTER SET utf8mb4")
	if numbered(err, errDatabaseDenied) {
		return fmt.Errorf("create a database on MySQL at %s: %w; an administrator can permit it: GRANT ALL ON `%s%%`.* TO %s",
			d.address, err, strings.ReplaceAll(Names, "_", `\_`), d.account(ctx))
	}
	if err != nil {
		return fmt.Errorf("create database %s on MySQL at %s: %w", d.name, d.address, err)
	}
	if ctx.Err() != nil {
		return errors.Join(ctx.Err(), AsLeft(d.drop(ctx)))
	}
	return nil
}

// account is how MySQL names the account.
func (d *Database) account(ctx context.Context) string {
	account := "the account"
	if rows := d.db.QueryRowContext(ctx, "SELECT CURRENT_USER()"); rows.Scan(&account) == nil {
		user, host, _ := strings.Cut(account, "@")
		account = "'" + user + "'@'" + host + "'"
	}
	return account
}

// measure reads the version, and how many connections are left.
func (d *Database) measure(ctx context.Context) error {
	var most, perUser int
	err := d.db.QueryRowContext(ctx, "SELECT VERSION(), @@max_connections, @@max_user_connections").
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
	if err := d.db.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'Threads_connected'").Scan(&name, &used); err != nil {
		return err
	}
	d.Isolation = map[string]string{}
	var level string
	const isolation = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('transaction_isolation', 'tx_isolation')"
	if err := d.db.QueryRowContext(ctx, isolation).Scan(&name, &level); err != nil {
		return err
	}
	d.Isolation[name] = level
	const ofLab = 8 // the oracle's, this one, and those of migrations and fault scenarios
	d.Free = most - used - ofLab
	if perUser > 0 {
		// Without the privilege PROCESS, an account sees its own connections, which are those that count here.
		const others = "SELECT COUNT(*) FROM information_schema.processlist " +
			"WHERE user = SUBSTRING_INDEX(CURRENT_USER(), '@', 1) AND id <> CONNECTION_ID()"
		if err := d.db.QueryRowContext(ctx, others).Scan(&used); err != nil {
			return err
		}
		d.Free = min(d.Free, perUser-used-ofLab)
	}
	return nil
}

// Remove drops the database, also after an interrupt. It must be called after all users of the database have ended.
func (d *Database) Remove(ctx context.Context) error { return errors.Join(d.drop(ctx), d.db.Close()) }

func (d *Database) drop(ctx context.Context) error {
	if err := d.exec(ctx, "DROP DATABASE IF EXISTS "+d.name); err != nil {
		return fmt.Errorf("database %s is still on MySQL at %s: remove it with DROP DATABASE %[1]s: %[3]w",
			d.name, d.address, err)
	}
	return nil
}

// exec goes on after an interrupt.
func (d *Database) exec(ctx context.Context, statement string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropTime)
	defer cancel()
	_, err := d.db.ExecContext(ctx, statement)
	return err
}

// numbered reports whether an error is the one of MySQL's with the number.
func numbered(err error, number uint16) bool {
	reply, ok := errors.AsType[*mysql.MySQLError](err)
	return ok && reply.Number == number
}
