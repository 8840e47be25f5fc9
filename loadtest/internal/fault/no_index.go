package fault

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"stock/loadtest/internal/history"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/scenario"
)

// noIndexScenarios are about the index by which a transaction finds the row that it locks.
var noIndexScenarios = []Scenario{
	lockedNeighbour("repeatable-read", "REPEATABLE-READ", true),
	lockedNeighbour("read-committed", "READ-COMMITTED", true),
	lockedNeighbour("unique-index", "REPEATABLE-READ", false),
}

// lockedNeighbour returns the story of a buyer of another item than the one that a transaction has locked.
func lockedNeighbour(variant, level string, dropIndex bool) Scenario {
	title := "The index on goods_id is dropped; A's transaction has locked the row of one item, and B buys another, at "
	if !dropIndex {
		title = "A's transaction has locked the row of one item, and B buys another, at "
	}
	return Scenario{
		Name:    "no-index/" + variant,
		Title:   title + level + ".",
		Applies: only("for-update", "update", "ledger", "batch-ledger"),
		Claim: func(s scenario.Strategy) Claim {
			switch {
			case !dropIndex:
				return claim("locks its row alone", report.Safe)
			case s.Name == "for-update":
				return claim("SELECT FOR UPDATE waits for every row", report.Blocked)
			case s.Name == "update" && level == "REPEATABLE-READ":
				return claim("UPDATE locks every row", report.Blocked)
			}
			// The transactions of the ledgers are at READ COMMITTED, whatever the server's default is.
			return claim("at READ COMMITTED, UPDATE passes over locked rows of other items", report.Safe)
		},
		Deploy: func(ctx context.Context, l *Lab) (*Deployment, error) {
			return onOwnDatabase(ctx, l, level, "--request-timeout="+patientTimeout.String())
		},
		Play: func(ctx context.Context, s *Stage) error {
			db, err := s.openMySQL(ctx, nil)
			if err != nil {
				return err
			}
			defer db.Close()
			other, err := s.newItem(ctx)
			if err != nil {
				return err
			}
			if dropIndex {
				err := s.Together(ctx, "the index on goods_id is dropped", func(ctx context.Context) error {
					_, err := db.ExecContext(ctx, "ALTER TABLE good_stock DROP INDEX good_stock_goods_id")
					return err
				})
				if err != nil {
					return err
				}
			}
			// Without an index, each cell would wait for the rows of the others.
			return s.InTurn(ctx, func() error { return s.buyNeighbour(ctx, db, other) })
		},
	}
}

// buyNeighbour has B buy the other item while A's order is parked before COMMIT.
func (s *Stage) buyNeighbour(ctx context.Context, db *sql.DB, other int64) error {
	a, _, err := s.parkAtFirst(ctx, order{
		client: "A", at: s.Victim, lines: []history.Line{{GoodsID: s.Item, Count: 1}}, timeout: patientTimeout,
	}, "before-commit")
	if err != nil {
		return err
	}
	asked := time.Now()
	buyer := order{client: "B", at: s.Survivor, lines: []history.Line{{GoodsID: other, Count: 2}}}
	b := s.start(ctx, buyer)
	waits, err := s.awaitRowWait(ctx, db, other, b.done)
	if err != nil {
		return err
	}
	index, err := goodsIndex(ctx, db)
	if err != nil {
		return err
	}
	if !waits {
		if b.op.Outcome != history.Sold {
			return fmt.Errorf("client B did not wait for a row, and was not sold anything: %s", b.op.Error)
		}
		s.Provef("%s; A is parked before COMMIT, and B is answered meanwhile", index)
		return s.release(ctx, a)
	}
	s.Provef("%s; A is parked before COMMIT, and B's statement about item %d waits for a row (innodb_trx)", index, other)
	if err := b.wait(); err != nil {
		return err
	}
	if err := s.release(ctx, a); err != nil {
		return err
	}
	buyer.client = "B-again"
	return s.buy(ctx, buyer, asked)
}

// goodsIndex says whether the row of an item is found by an index.
func goodsIndex(ctx context.Context, db *sql.DB) (string, error) {
	const query = `SELECT COUNT(*) FROM information_schema.statistics
		WHERE table_schema = DATABASE() AND table_name = 'good_stock' AND column_name = 'goods_id'`
	var indexes int
	err := db.QueryRowContext(ctx, query).Scan(&indexes)
	if indexes == 0 {
		return "good_stock has no index on goods_id", err
	}
	return "good_stock has a unique index on goods_id", err
}
