package oracle

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"stock/loadtest/internal/history"
)

// Stock reads the units of each item. It fails if the store does not have one of them.
func (o *Oracle) Stock(ctx context.Context, store string, goods []int64) (map[int64]int64, error) {
	if !o.Sees(store) {
		return nil, fmt.Errorf("the oracle was not told where store %q is", store)
	}
	var units map[int64]int64
	var err error
	switch store {
	case MySQL:
		const query = "SELECT goods_id, stock FROM good_stock WHERE goods_id IN (%s)"
		units, err = o.mysqlStock(ctx, query, goods)
	case Slots:
		const query = "SELECT goods_id, SUM(stock) FROM good_slot WHERE goods_id IN (%s) GROUP BY goods_id"
		units, err = o.mysqlStock(ctx, query, goods)
	case Units:
		const query = `SELECT goods_id, unmade + (SELECT COUNT(*) FROM good_unit u WHERE u.goods_id = s.goods_id)
			FROM unit_stock s WHERE goods_id IN (%s)`
		units, err = o.mysqlStock(ctx, query, goods)
	case Redis:
		units, err = o.redisStock(ctx, goods)
	}
	if err != nil {
		return nil, fmt.Errorf("read the stock in %s: %w", store, err)
	}
	for _, id := range goods {
		if _, ok := units[id]; !ok {
			return nil, fmt.Errorf("read the stock in %s: no item %d", store, id)
		}
	}
	return units, nil
}

// mysqlStock reads all items in one statement, so that their stock is of one moment.
func (o *Oracle) mysqlStock(ctx context.Context, query string, goods []int64) (map[int64]int64, error) {
	ids := make([]string, len(goods))
	for i, id := range goods {
		ids[i] = strconv.FormatInt(id, 10)
	}
	units := make(map[int64]int64, len(goods))
	err := o.query(ctx, func(rows *sql.Rows) error {
		var id, stock int64
		err := rows.Scan(&id, &stock)
		units[id] = stock
		return err
	}, fmt.Sprintf(query, strings.Join(ids, ",")))
	return units, err
}

// redisStock reads one key at a time: the keys of a cluster may be on different nodes.
func (o *Oracle) redisStock(ctx context.Context, goods []int64) (map[int64]int64, error) {
	units := make(map[int64]int64, len(goods))
	for _, id := range goods {
		o.ownCommands.Add(1)
		stock, err := o.redis.Get(ctx, fmt.Sprintf("%sstock:{%d}", o.prefix, id)).Int64()
		if errors.Is(err, redis.Nil) {
			continue
		}
		if err != nil {
			return nil, err
		}
		units[id] = stock
	}
	return units, nil
}

// Ledger reads the service's ledger rows of the deductions whose names begin with the prefix and a dash.
func (o *Oracle) Ledger(ctx context.Context, prefix string) ([]history.Entry, error) {
	// A range of the primary key, which is sorted by bytes: '.' follows '-'.
	const query = `SELECT order_key, goods_id, count, remaining FROM ledger
		WHERE order_key >= ? AND order_key < ? AND outcome <> 'held' ORDER BY order_key, line`
	var entries []history.Entry
	err := o.query(ctx, func(rows *sql.Rows) error {
		var e history.Entry
		err := rows.Scan(&e.Key, &e.GoodsID, &e.Count, &e.Remaining)
		entries = append(entries, e)
		return err
	}, query, []byte(prefix+"-"), []byte(prefix+"."))
	if err != nil {
		return nil, fmt.Errorf("read the ledger of the deductions %s-…: %w", prefix, err)
	}
	return entries, nil
}

// query sends one statement and scans each of its rows.
func (o *Oracle) query(ctx context.Context, scan func(*sql.Rows) error, query string, args ...any) error {
	o.ownStatements.Add(1)
	rows, err := o.db.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}
