package fault

import (
	"context"
	"database/sql"

	"github.com/go-sql-driver/mysql"
)

// execute returns what carries out a statement.
func execute(db *sql.DB, query string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := db.ExecContext(ctx, query)
		return err
	}
}

// mysql opens connections of the scenario's own to the database.
func (s *Stage) mysql() *sql.DB {
	config, err := mysql.ParseDSN(s.Addresses.MySQLDSN)
	s.check(err)
	config.InterpolateParams = true
	config.Logger = &mysql.NopLogger{} // scenarios break connections
	connector, err := mysql.NewConnector(config)
	s.check(err)
	db := sql.OpenDB(connector)
	s.atEnd = append(s.atEnd, func() { db.Close() })
	s.check(db.PingContext(s.ctx))
	return db
}

// whileLocked plays a part of the scenario while another transaction has locked the row of an item.
func (s *Stage) whileLocked(item int64, part func()) {
	tx, err := s.mysql().BeginTx(s.ctx, nil)
	s.check(err)
	defer tx.Rollback()
	var units int64
	s.check(tx.QueryRowContext(s.ctx, "SELECT stock FROM good_stock WHERE goods_id = ? FOR UPDATE", item).Scan(&units))
	s.Stepf("another transaction has locked the row of item %d", item)
	part()
}
