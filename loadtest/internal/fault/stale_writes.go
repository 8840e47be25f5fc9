package fault

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"stock/loadtest/internal/history"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/scenario"
	"stock/loadtest/internal/traffic"
)

// staleWriteScenarios are about the check by which a write finds that the row has changed since it was read.
var staleWriteScenarios = []Scenario{aba, coarseTimestamp}

// aba is the story of a stock that falls and comes back, so that it is what A has read. Where the stock is all that was
// read, the stale write is right all the same. The practices read and write more than that.
var aba = Scenario{
	Name:    "aba",
	Title:   "Before A writes, a unit is sold and another put back, so that the stock is again what A has read.",
	Applies: only("optimistic-stock", "optimistic-version", "optimistic-spin", "optimistic-timestamp-us", "redis-watch"),
	Claim: func(s scenario.Strategy) Claim {
		if s.Name == acceptsABA {
			return claim("accepts the stale write, and the stock is right", report.Safe)
		}
		return claim("refuses the stale write", report.Safe)
	},
	Practices: []Practice{
		{
			Name:  "two-items-checked-by-stock",
			Claim: claim("loses-updates", report.Unsafe),
			Play:  func(ctx context.Context, s *Stage) error { return playTwoItems(ctx, s, "stock") },
		},
		{
			Name:  "two-items-checked-by-version",
			Claim: claim("refuses the stale write", report.Safe),
			Play:  func(ctx context.Context, s *Stage) error { return playTwoItems(ctx, s, "version") },
		},
	},
	Deploy: patient(),
	Play:   playABA,
}

// acceptsABA is the strategy whose check does not notice that the stock has changed and come back.
const acceptsABA = "optimistic-stock"

func playABA(ctx context.Context, s *Stage) error {
	a, _, err := s.parkAtFirst(ctx, order{client: "A", at: s.Victim, timeout: patientTimeout}, "before-write")
	if err != nil {
		return err
	}
	s.Stepf("A has read %d", units)
	if err := s.mustBuy(ctx, order{client: "B", at: s.Survivor}); err != nil {
		return err
	}
	if err := s.restock(ctx, s.Item, 1); err != nil {
		return err
	}
	stock, err := s.Oracle.Stock(ctx, s.Store, []int64{s.Item})
	if err != nil {
		return err
	}
	if err := s.release(ctx, a); err != nil {
		return err
	}
	switch accepted := a.op.Attempts == 1; {
	case a.op.Outcome != history.Sold:
		return fmt.Errorf("client A was not sold anything: %s", a.op.Error)
	case stock[s.Item] != units:
		return fmt.Errorf("the stock is %d, and not %d again", stock[s.Item], units)
	case accepted != (s.Strategy.Name == acceptsABA):
		s.Failf("the stock was %d again before A wrote, and A sold at attempt %d", stock[s.Item], a.op.Attempts)
	case accepted:
		s.Provef("the stock was %d again before A wrote, and A's stale write was accepted", stock[s.Item])
	default:
		s.Provef("the stock was %d again before A wrote, and A sold at attempt %d", stock[s.Item], a.op.Attempts)
	}
	return nil
}

// restock puts units of an item back, and records it.
func (s *Stage) restock(ctx context.Context, item, count int64) error {
	op := history.Op{Kind: history.Restock, Name: s.requestName("restock"), GoodsID: item, Count: count}
	op, err := traffic.RestockOne(ctx, s.Survivor.AdminURL, s.Store, clientTimeout, op)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.ops = append(s.ops, op)
	s.mu.Unlock()
	if op.Outcome != history.Sold {
		return fmt.Errorf("%d units of item %d were not put back: %s", count, item, op.Error)
	}
	s.Stepf("%d of item %d put back; there are %d now", count, item, op.Remaining)
	return nil
}

// playTwoItems has A and B order the same two items: each reads both rows, and writes both if a column of the first row
// has not changed.
func playTwoItems(ctx context.Context, s *Stage, check string) error {
	db, err := s.openMySQL(ctx, nil)
	if err != nil {
		return err
	}
	defer db.Close()
	second, err := s.newItem(ctx)
	if err != nil {
		return err
	}
	practice := checkedByFirst{s: s, db: db, check: check}
	linesOfB := []history.Line{{GoodsID: s.Item, Count: 1}, {GoodsID: second, Count: 2}}
	linesOfA := []history.Line{{GoodsID: s.Item, Count: 1}, {GoodsID: second, Count: 1}}
	var failure error
	s.performOrder("A", linesOfA, func() error {
		return practice.buy(ctx, linesOfA, func(before checkedRow) error {
			s.Stepf("A has read %d of the first item", before.stock)
			s.performOrder("B", linesOfB, func() error { return practice.buy(ctx, linesOfB, nil) })
			if failure = s.restock(ctx, s.Item, 1); failure != nil {
				return failure
			}
			var after checkedRow
			if after, failure = practice.read(ctx, s.Item); failure == nil && after.stock == before.stock {
				s.Provef("the stock of the first item is %d again before A writes, and its version has risen from %d to %d",
					after.stock, before.version, after.version)
			}
			return failure
		})
	})
	return failure
}

// checkedByFirst orders several items by optimistic locking: a check of the first row stands for all rows that were
// read.
type checkedByFirst struct {
	s     *Stage
	db    *sql.DB
	check string // the column of the first row that must not have changed
}

// checkedRow is what was read of an item.
type checkedRow struct{ stock, version int64 }

// errChanged is a refusal: the row has changed since it was read.
var errChanged = errors.New("the row has changed")

func (c checkedByFirst) read(ctx context.Context, item int64) (row checkedRow, err error) {
	const query = "SELECT stock, version FROM good_stock WHERE goods_id = ?"
	err = c.db.QueryRowContext(ctx, query, item).Scan(&row.stock, &row.version)
	return row, err
}

// buy tries twice. Between the first read and the write, it calls meanwhile with what it has read of the first item.
func (c checkedByFirst) buy(ctx context.Context, lines []history.Line, meanwhile func(checkedRow) error) error {
	for try := 1; ; try++ {
		var rows []checkedRow
		for _, line := range lines {
			row, err := c.read(ctx, line.GoodsID)
			if err != nil {
				return err
			}
			rows = append(rows, row)
		}
		if try == 1 && meanwhile != nil {
			if err := meanwhile(rows[0]); err != nil {
				return err
			}
		}
		err := c.write(ctx, lines, rows)
		if !errors.Is(err, errChanged) || try == 2 {
			return err
		}
		c.s.Stepf("the write is refused: the row has changed")
	}
}

// write overwrites the stock of all items, if the checked column of the first is as it was read.
func (c checkedByFirst) write(ctx context.Context, lines []history.Line, rows []checkedRow) error {
	return c.s.inTransaction(ctx, c.db, sql.LevelDefault, func(tx transaction) error {
		for i := range lines {
			lines[i].Remaining = rows[i].stock - lines[i].Count
			query, args := writeSQL, []any{lines[i].Remaining, lines[i].GoodsID}
			if i == 0 {
				query += " AND " + c.check + " = ?"
				args = append(args, map[string]int64{"stock": rows[0].stock, "version": rows[0].version}[c.check])
			}
			result, err := tx.ExecContext(ctx, query, args...)
			if err != nil {
				return err
			}
			if written, err := result.RowsAffected(); err != nil || written == 0 {
				return errors.Join(err, errChanged)
			}
		}
		return nil
	})
}

// coarseTimestamp is the story of a timestamp that two writes leave equal.
var coarseTimestamp = Scenario{
	Name:    "coarse-timestamp",
	Title:   "B buys after A has read the stock and its timestamp, within the same second as the sale before.",
	Applies: only("optimistic-timestamp", "optimistic-timestamp-us"),
	Claim: func(s scenario.Strategy) Claim {
		if s.Control {
			return claim("loses-updates", report.Unsafe)
		}
		return claim("refuses the stale write", report.Safe)
	},
	Deploy: patient(),
	Play: func(ctx context.Context, s *Stage) error {
		db, err := s.openMySQL(ctx, nil)
		if err != nil {
			return err
		}
		defer db.Close()
		if err := s.setManyUnits(ctx); err != nil {
			return err
		}
		const tries = 20 // a new second may begin in between
		for try := range tries {
			struck, err := s.sellWithinSecond(ctx, db, fmt.Sprint(try+1))
			if struck || err != nil {
				return err
			}
		}
		return fmt.Errorf("in each of %d tries, a new second began", tries)
	},
}

// sellWithinSecond reports whether the timestamp that A has read is still that of the row when A writes.
func (s *Stage) sellWithinSecond(ctx context.Context, db *sql.DB, number string) (struck bool, err error) {
	if _, err := s.send(ctx, order{client: "Z" + number, at: s.Survivor}); err != nil {
		return false, err
	}
	a, _, err := s.parkAtFirst(ctx, order{client: "A" + number, at: s.Victim, timeout: patientTimeout}, "before-write")
	if err != nil {
		return false, err
	}
	read, err := s.stampSeconds(ctx, db)
	if err != nil {
		return false, err
	}
	b, err := s.send(ctx, order{client: "B" + number, at: s.Survivor, count: 2})
	if err != nil {
		return false, err
	}
	found, err := s.stampSeconds(ctx, db)
	if err != nil {
		return false, err
	}
	if err := s.release(ctx, a); err != nil {
		return false, err
	}
	struck = b.Outcome == history.Sold && read.Equal(found)
	if struck {
		s.Provef("A has read the timestamp %s, and finds the same after B has bought", read.Format(time.TimeOnly))
	} else {
		s.Stepf("a new second has begun: A has read %s, and finds %s", read.Format(time.TimeOnly),
			found.Format(time.TimeOnly))
	}
	return struck, nil
}

// stampSeconds reads the time of the last write to the item's row, in whole seconds.
func (s *Stage) stampSeconds(ctx context.Context, db *sql.DB) (stamp time.Time, err error) {
	const query = "SELECT stamp_seconds FROM good_stock WHERE goods_id = ?"
	err = db.QueryRowContext(ctx, query, s.Item).Scan(&stamp)
	return stamp, err
}
