package fault

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"stock/internal/servers"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/scenario"
)

// databaseCrashScenarios are about sales that were confirmed before MySQL was killed.
var databaseCrashScenarios = []Scenario{databaseCrash(0), databaseCrash(1), databaseCrash(2)}

// databaseCrash returns the story of a MySQL that is killed, with a value of innodb_flush_log_at_trx_commit.
func databaseCrash(flush int) Scenario {
	return Scenario{
		Name:  fmt.Sprintf("database-crash/flush-%d", flush),
		Title: fmt.Sprintf("MySQL is killed after it has sold, with innodb_flush_log_at_trx_commit=%d (SIGKILL).", flush),
		Applies: only(
			"update", "for-update", "optimistic-version", "ledger", "slots", "escrow", "batch", "batch-ledger"),
		Claim: func(scenario.Strategy) Claim {
			switch flush {
			case 0:
				return claim("loses what was confirmed since the log was last flushed", report.Unsafe)
			case 1:
				return claim("a confirmed sale is on disk", report.Safe)
			}
			return claim("a confirmed sale is with the operating system, which goes on", report.Safe)
		},
		Deploy: func(ctx context.Context, l *Lab) (*Deployment, error) {
			// The items are put on sale with the server's default, 1, so that they are on disk.
			return onOwnMySQL(ctx, l, servers.MySQLOptions{Args: []string{
				// Otherwise the log is flushed once a second, or before pages are, and nobody knows how much is lost.
				"--skip-log-bin", "--innodb-flush-log-at-timeout=2700",
				"--innodb-max-dirty-pages-pct-lwm=80", "--loose-innodb-idle-flush-pct=0",
			}})
		},
		Play: func(ctx context.Context, s *Stage) error { return playDatabaseCrash(ctx, s, flush) },
	}
}

func playDatabaseCrash(ctx context.Context, s *Stage, flush int) error {
	db, err := s.openMySQL(ctx, nil)
	if err != nil {
		return err
	}
	defer db.Close()
	if err := s.setManyUnits(ctx); err != nil {
		return err
	}
	set := fmt.Sprintf("SET GLOBAL innodb_flush_log_at_trx_commit = %d", flush)
	err = s.together(ctx, report.Event, set, func(ctx context.Context) error {
		_, err := db.ExecContext(ctx, set)
		return err
	})
	if err != nil {
		return err
	}
	before, after, err := s.sellUntilAllHaveSold(ctx, db, flush)
	if err != nil {
		return err
	}
	if err := s.Together(ctx, "MySQL is killed and started again", s.MySQL.Restart); err != nil {
		return err
	}
	s.Provef("the log was flushed up to %d before the sales, and up to %d of %d after them; then MySQL was killed",
		before.flushed, after.flushed, after.written)
	return s.buy(ctx, order{client: "D", at: s.Survivor}, time.Now())
}

// sellUntilAllHaveSold sells for all cells, and again for those whose sales the server flushed for other reasons while
// others still sold. When it returns, nobody sells until MySQL is killed.
func (s *Stage) sellUntilAllHaveSold(ctx context.Context, db *sql.DB, flush int) (before, after redoLog, err error) {
	const times = 3 // the same for all cells, because each time they wait for each other
	for i := range times {
		if i == 0 || flush != 1 && after.flushed != before.flushed {
			if before, after, err = s.sellAndFlush(ctx, db, flush, i); err != nil {
				return before, after, err
			}
		}
		err = s.together(ctx, report.Event, "all have sold", func(context.Context) error { return nil })
		if err != nil {
			return before, after, err
		}
		var now redoLog
		if now, err = readRedoLog(ctx, db); err != nil {
			return before, after, err
		}
		after.flushed = now.flushed
	}
	if flush != 1 && after.flushed != before.flushed {
		err = fmt.Errorf("the log was flushed after the sales, up to %d", after.flushed)
	}
	return before, after, err
}

// sellAndFlush has clients buy until the log is as it should be after their sales: flushed to its end if each COMMIT
// flushes it, and not flushed at all otherwise. The server also writes and flushes for other reasons. again is how
// often the same cell has done this before.
func (s *Stage) sellAndFlush(ctx context.Context, db *sql.DB, flush, again int) (before, after redoLog, err error) {
	const tries = 20
	for try := range tries {
		before, after, err = s.sellAndReadLog(ctx, db, strconv.Itoa(again*tries+try+1))
		if err != nil {
			return before, after, err
		}
		asItShould := after.flushed == before.flushed
		if flush == 1 {
			asItShould = after.flushed >= after.written
		}
		if asItShould {
			return before, after, nil
		}
	}
	return before, after, fmt.Errorf("in each of %d tries, the log was flushed up to %d of %d after the sales", tries,
		after.flushed, after.written)
}

// sellAndReadLog has three clients buy, and reads how far the log has come before and after that.
func (s *Stage) sellAndReadLog(ctx context.Context, db *sql.DB, number string) (before, after redoLog, err error) {
	if before, err = readRedoLog(ctx, db); err != nil {
		return before, after, err
	}
	for _, o := range []order{
		{client: "A", at: s.Victim}, {client: "B", at: s.Survivor, count: 2}, {client: "C", at: s.Victim},
	} {
		o.client += number
		if err := s.mustBuy(ctx, o); err != nil {
			return before, after, err
		}
	}
	after, err = readRedoLog(ctx, db)
	return before, after, err
}

// redoLog is how far InnoDB's log has come, in bytes since the database was created.
type redoLog struct{ written, flushed int64 }

var redoLogStatus = regexp.MustCompile(`Log sequence number\s+(\d+)(?s:.*)Log flushed up to\s+(\d+)`)

func readRedoLog(ctx context.Context, db *sql.DB) (log redoLog, err error) {
	var engine, name, status string
	if err := db.QueryRowContext(ctx, "SHOW ENGINE INNODB STATUS").Scan(&engine, &name, &status); err != nil {
		return log, err
	}
	match := redoLogStatus.FindStringSubmatch(status)
	if match == nil {
		return log, fmt.Errorf("SHOW ENGINE INNODB STATUS does not say how far the log has come")
	}
	if log.written, err = strconv.ParseInt(match[1], 10, 64); err != nil {
		return log, err
	}
	log.flushed, err = strconv.ParseInt(match[2], 10, 64)
	return log, err
}
