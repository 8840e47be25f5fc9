package fault

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"stock/loadtest/internal/oracle"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/scenario"
)

// falseSoldOutScenarios are about buyers who are refused while stock is left.
var falseSoldOutScenarios = []Scenario{unitsOnTheirWayBack, restockedElsewhere, lockedUnits}

// undersellsIf is the claim of the strategies with the given names: they undersell. Others are correct.
func undersellsIf(names ...string) func(scenario.Strategy) Claim {
	return func(s scenario.Strategy) Claim {
		if only(names...)(s) == "" {
			return claim("undersells", report.Unsafe)
		}
		return claim("correct", report.Safe)
	}
}

// unitsOnTheirWayBack is the story of a request that takes units before it looks whether there are enough.
var unitsOnTheirWayBack = Scenario{
	Name:    "false-sold-out/units-on-their-way-back",
	Title:   "A asks for more than is left, and B for less before A is refused.",
	Applies: only("redis-prededuct", "local-sold-out", "redis-script", "redis-watch"),
	Claim:   undersellsIf("redis-prededuct", "local-sold-out"),
	Play: func(ctx context.Context, s *Stage) error {
		greedy := order{client: "A", at: s.Victim, count: units + 1, timeout: patientTimeout}
		a, parked, err := s.parkAt(ctx, greedy, "before-commit")
		if err != nil {
			return err
		}
		b, err := s.send(ctx, order{client: "B", at: s.Survivor})
		if err != nil {
			return err
		}
		if !parked {
			s.Provef("A was refused at once, before B asked for 1 of %d units", units)
			return nil
		}
		if err := s.release(ctx, a); err != nil {
			return err
		}
		s.Provef("A asked for %d of %d units, and was parked between taking and returning them while B was told: %s",
			units+1, units, b.Outcome)
		return nil
	},
}

// restockedElsewhere is the story of a replica that has refused, and does not learn that there is stock again.
var restockedElsewhere = Scenario{
	Name:    "false-sold-out/restocked-elsewhere",
	Title:   "A replica has refused a buyer as sold out. Then the other replica puts units back.",
	Applies: only("local-sold-out", "redis-prededuct", "redis-script", "update", "slots", "units"),
	Claim:   undersellsIf("local-sold-out"),
	Play: func(ctx context.Context, s *Stage) error {
		if err := s.mustBuy(ctx, order{client: "A", at: s.Victim, count: units}); err != nil {
			return err
		}
		b, err := s.send(ctx, order{client: "B", at: s.Victim})
		if err != nil {
			return err
		}
		if err := s.restock(ctx, s.Item, 5); err != nil {
			return err
		}
		s.Provef("the victim has told B that the item is %s, and the survivor has put 5 units back", b.Outcome)
		_, err = s.send(ctx, order{client: "C", at: s.Victim})
		return err
	},
}

// lockedUnits is the story of rows that are locked and not sold.
var lockedUnits = Scenario{
	Name:    "false-sold-out/locked-units",
	Title:   "A has locked all units of an item, one row each, and gives up while B asks for one with SKIP LOCKED.",
	Applies: noStrategy,
	Practices: []Practice{
		{
			Name: "skip-locked-once", Store: oracle.Units, Claim: claim("undersells", report.Unsafe),
			Play: playLockedUnits(false),
		},
		{
			Name: "skip-locked-then-wait", Store: oracle.Units, Claim: claim("correct", report.Safe),
			Play: playLockedUnits(true),
		},
	},
}

// Statements of a buyer of rows.
const (
	unitSQL       = "SELECT unit FROM good_unit FORCE INDEX (PRIMARY) WHERE goods_id = ? LIMIT 1 FOR UPDATE"
	deleteUnitSQL = "DELETE good_unit FROM good_unit FORCE INDEX (PRIMARY) WHERE goods_id = ?"
)

// playLockedUnits has B ask once more and wait, or not.
func playLockedUnits(asksAgain bool) func(context.Context, *Stage) error {
	return func(ctx context.Context, s *Stage) error {
		db, err := s.openMySQL(ctx, nil)
		if err != nil {
			return err
		}
		defer db.Close()
		if err := s.makeUnits(ctx, db); err != nil {
			return err
		}
		gaveUp := errors.New("the buyer of all units has given up")
		answered := make(chan struct{})
		err = s.inTransaction(ctx, db, sql.LevelReadCommitted, func(a transaction) error {
			deleted, err := a.ExecContext(ctx, deleteUnitSQL, s.Item)
			if err != nil {
				return err
			}
			locked, err := deleted.RowsAffected()
			if err != nil {
				return err
			}
			s.inBackground(func() {
				defer close(answered)
				s.perform("B", 1, func() (int64, error) { return 0, s.buyUnit(ctx, db, asksAgain) })
			})
			waits, err := s.awaitRowWait(ctx, db, s.Item, answered)
			if err != nil {
				return err
			}
			s.Provef("A has locked %d rows, which it will not sell; B waits for one of them: %v", locked, waits)
			return gaveUp
		})
		if !errors.Is(err, gaveUp) {
			return err
		}
		<-answered
		return nil
	}
}

// makeUnits makes a row for each unit of the item.
func (s *Stage) makeUnits(ctx context.Context, db *sql.DB) error {
	for unit := range units {
		if _, err := db.ExecContext(ctx, "INSERT INTO good_unit (goods_id, unit) VALUES (?, ?)", s.Item, unit+1); err != nil {
			return err
		}
	}
	_, err := db.ExecContext(ctx, "UPDATE unit_stock SET unmade = 0, made = ? WHERE goods_id = ?", units, s.Item)
	return err
}

// buyUnit sells a unit that nobody has locked. If there is none, it waits for one, or takes the item for sold out.
func (s *Stage) buyUnit(ctx context.Context, db *sql.DB, asksAgain bool) error {
	return s.inTransaction(ctx, db, sql.LevelReadCommitted, func(tx transaction) error {
		var unit int64
		err := tx.QueryRowContext(ctx, unitSQL+" SKIP LOCKED", s.Item).Scan(&unit)
		if asksAgain && errors.Is(err, sql.ErrNoRows) {
			err = tx.QueryRowContext(ctx, unitSQL, s.Item).Scan(&unit)
		}
		if errors.Is(err, sql.ErrNoRows) {
			return fmt.Errorf("%w: no row is free", errSoldOut)
		}
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, deleteUnitSQL+" AND unit = ?", s.Item, unit)
		return err
	})
}
