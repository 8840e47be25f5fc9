package script

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jmoiron/sqlx"
	"go.starlark.net/starlark"
)

// mysqlServer is a MySQL or MariaDB, or the proxy in front of one, which holds the statements of a session.
type mysqlServer struct {
	db   *sqlx.DB
	open map[*sqlx.Conn]bool // that may be in a transaction
}

// OnMySQL returns stores that are not connected yet.
func OnMySQL(dsn, isolation, redisAddr string) (*Stores, error) {
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, err
	}
	config.InterpolateParams, config.Logger = true, &mysql.NopLogger{}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	m := &mysqlServer{db: sqlx.NewDb(sql.OpenDB(connector), "mysql"), open: map[*sqlx.Conn]bool{}}
	return newStores(m, isolation, redisAddr), nil
}

func (m *mysqlServer) connect(ctx context.Context, isolation string) (*sqlx.Conn, error) {
	conn, err := m.db.Connx(ctx)
	if err != nil {
		return nil, err
	}
	// MariaDB 11.6.2 and later refuse to lock a row that has changed since the transaction's first read (1020), unless
	// told not to. Other servers ignore the comment.
	settings := []string{"SET @ignored = 0 /*M!110602 , SESSION innodb_snapshot_isolation = OFF */"}
	if isolation != "" {
		settings = append(settings, "SET SESSION TRANSACTION ISOLATION LEVEL "+isolation)
	}
	for _, setting := range settings {
		if _, err := conn.ExecContext(ctx, setting); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
	}
	return conn, nil
}

func (m *mysqlServer) query(
	ctx context.Context, conn *sqlx.Conn, first, statement string, args []any,
) (starlark.Value, error) {
	value, err := execute(ctx, conn, first, statement, args)
	switch {
	case err != nil:
	case first == "BEGIN", first == "START", first == "SET" && strings.Contains(strings.ToLower(statement), "autocommit"):
		m.open[conn] = true
	case first == "COMMIT", first == "ROLLBACK":
		m.open[conn] = false
	}
	return value, err
}

func (m *mysqlServer) failed(err error) (f failure, ok bool) {
	refused, ok := errors.AsType[*mysql.MySQLError](err)
	switch {
	case isLost(err):
		return failure{text: "the connection to MySQL was lost", lost: true}, true
	case !ok:
		return failure{}, false
	}
	class := string(refused.SQLState[:2])
	mistake := class == "42" || class == "21"
	return failure{
		text: refused.Error(), code: starlark.MakeInt(int(refused.Number)), mistake: mistake, refusal: !mistake,
	}, true
}

func (m *mysqlServer) rollBack(ctx context.Context, conn *sqlx.Conn) {
	if m.open[conn] {
		_, _ = conn.ExecContext(ctx, "ROLLBACK") // if it fails, the connection is lost, and the transaction with it
	}
}

func (m *mysqlServer) cut(conn *sqlx.Conn) {
	_ = conn.Raw(func(any) error { return io.EOF })
	_ = conn.Close() // it is lost already
}

func (m *mysqlServer) close(conns []*sqlx.Conn) error {
	var errs []error
	for _, conn := range conns {
		errs = append(errs, conn.Close())
	}
	return errors.Join(append(errs, m.db.Close())...)
}
