package bench

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
)

// statement is the one that update deducts with.
const statement = "UPDATE good_stock SET stock = LAST_INSERT_ID(stock - ?), version = version + 1 " +
	"WHERE goods_id = ? AND stock >= ?"

// raw sends the statement as fast as MySQL answers it, on one connection per user.
func (b *bench) raw(ctx context.Context, _ int) (c cell, err error) {
	if err := b.Target.SetStock(ctx, map[int64]int64{1: ample}); err != nil {
		return cell{}, err
	}
	config, err := mysql.ParseDSN(b.MySQLDSN)
	if err != nil {
		return cell{}, err
	}
	config.InterpolateParams = true // one round trip, as in the service
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return cell{}, err
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	db.SetMaxIdleConns(b.Users)

	conns := make([]*sql.Conn, 0, b.Users)
	defer func() {
		for _, conn := range conns {
			conn.Close()
		}
	}()
	for range b.Users {
		conn, err := db.Conn(ctx)
		if err != nil {
			return cell{}, err
		}
		conns = append(conns, conn)
	}
	for _, duration := range []time.Duration{warmUp, b.Time} {
		b.warm()
		if c, err = loop(ctx, conns, duration); err != nil {
			return cell{}, err
		}
	}
	return c, nil
}

// loop measures the statement. No connection starts one after the duration, and each ends its last one.
func loop(ctx context.Context, conns []*sql.Conn, duration time.Duration) (cell, error) {
	var all sync.WaitGroup
	var n atomic.Int64
	errs := make(chan error, len(conns))
	began := time.Now()
	for _, conn := range conns {
		all.Go(func() {
			for time.Since(began) < duration && ctx.Err() == nil {
				result, err := conn.ExecContext(ctx, statement, 1, 1, 1)
				if err == nil {
					if rows, _ := result.RowsAffected(); rows != 1 {
						err = fmt.Errorf("the statement changed %d rows, want 1", rows)
					}
				}
				if err != nil {
					errs <- err
					return
				}
				n.Add(1)
			}
		})
	}
	all.Wait()
	took := time.Since(began)
	select {
	case err := <-errs:
		return cell{}, err
	default:
		return cell{rate: float64(n.Load()) / took.Seconds(), requests: int(n.Load())}, ctx.Err()
	}
}
