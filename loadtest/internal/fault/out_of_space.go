package fault

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/internal/servers"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/scenario"
)

var outOfSpaceScenarios = []Scenario{mysqlOutOfSpace, redisOutOfMemory}

// smallDisk is the size in bytes of the disk of a MySQL that is to be filled. It is in memory.
const smallDisk = 128 << 20

// mysqlOutOfSpace is the story of a MySQL without a binary log whose disk is full. With a binary log, it would hang
// until there is room.
var mysqlOutOfSpace = Scenario{
	Name:    "out-of-space/mysql",
	Title:   "MySQL's disk is full, clients go on buying, and later there is room again.",
	Applies: only("update", "for-update", "optimistic-version", "ledger", "batch", "batch-ledger"),
	Claim: func(s scenario.Strategy) Claim {
		if s.Idempotent {
			return claim("refuses while its ledger cannot grow, and sells again afterwards", report.Safe)
		}
		return claim("goes on selling: it needs no more space", report.Safe)
	},
	Missing: func(context.Context) string {
		if err := servers.CheckMount(); err != nil {
			return err.Error()
		}
		return ""
	},
	Deploy: func(ctx context.Context, l *Lab) (*Deployment, error) {
		return onOwnMySQL(ctx, l, servers.MySQLOptions{Disk: smallDisk, Args: []string{
			"--skip-log-bin", "--innodb-flush-log-at-trx-commit=2",
		}})
	},
	Play: playMySQLOutOfSpace,
}

const (
	fullDiskSales = 50    // with a full disk, by a strategy that needs no space
	fullDiskTries = 10000 // until one is refused, by a strategy that needs some
)

func playMySQLOutOfSpace(ctx context.Context, s *Stage) error {
	if err := s.setManyUnits(ctx); err != nil {
		return err
	}
	ballast := filepath.Join(s.MySQL.Data, "ballast")
	err := s.Together(ctx, "the disk of MySQL is full", func(context.Context) error { return fillDisk(ballast) })
	if err != nil {
		return err
	}
	sales, refused, err := s.buyOnFullDisk(ctx)
	if err != nil {
		return err
	}
	var disk syscall.Statfs_t
	if err := syscall.Statfs(s.MySQL.Data, &disk); err != nil {
		return err
	}
	switch {
	case disk.Bavail > 0:
		return fmt.Errorf("the disk has %d free blocks", disk.Bavail)
	case refused && s.Strategy.Idempotent:
		s.Provef("the disk has no free block; after %d more sales, the next is refused: %s", sales, s.last().Error)
	case refused:
		s.Failf("the disk has no free block; after %d more sales, the next is refused: %s", sales, s.last().Error)
	case s.Strategy.Idempotent:
		s.Failf("the disk has no free block, and the ledger has grown by %d sales", sales)
	default:
		s.Provef("the disk has no free block, and %d more sales are made", sales)
	}
	err = s.Mend(ctx, "there is room again", func(context.Context) error { return os.Remove(ballast) })
	if err != nil {
		return err
	}
	return s.buy(ctx, order{client: "B", at: s.Survivor, count: 2}, time.Now())
}

// fillDisk writes a file until there is no room for one more byte.
func fillDisk(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	for size := 1 << 20; size > 0; {
		switch _, err := file.Write(make([]byte, size)); {
		case errors.Is(err, syscall.ENOSPC):
			size /= 2
		case err != nil:
			return err
		}
	}
	return nil
}

// buyOnFullDisk counts the sales until one is refused, or until there were enough. It fails the claim if an answer
// leaves open whether something was sold.
func (s *Stage) buyOnFullDisk(ctx context.Context) (sales int, refused bool, err error) {
	enough := fullDiskSales
	if s.Strategy.Idempotent {
		enough = fullDiskTries
	}
	for ; sales < enough; sales++ {
		op, err := s.exchange(ctx, order{client: fmt.Sprintf("A%d", sales), at: s.Victim})
		if err != nil {
			return sales, false, err
		}
		s.mu.Lock()
		s.ops = append(s.ops, op) // without a step: there are many
		s.mu.Unlock()
		switch op.Outcome {
		case history.Sold:
		case history.Busy:
			return sales, true, nil
		default:
			s.Failf("with a full disk, A%d was answered %d %s, which is no clear refusal", sales, op.Status, op.Error)
			return sales, true, nil
		}
	}
	return sales, false, nil
}

// redisOutOfMemory is the story of a Redis that takes no more writes. It does not evict keys, as it should not where it
// keeps locks or stock.
var redisOutOfMemory = Scenario{
	Name:  "out-of-space/redis",
	Title: "Redis is out of memory (maxmemory, noeviction) while A is inside, and later there is room again.",
	Applies: func(s scenario.Strategy) string {
		switch {
		case !slices.Contains(s.Needs, "redis"):
			return "it does not use Redis"
		case slices.Contains(s.Needs, "redis-replica"):
			return "the Redis of the story has no Redis replica"
		}
		return ""
	},
	Claim: func(s scenario.Strategy) Claim {
		if s.Name == writesWithoutMemory {
			return claim("goes on: Redis lets a script write that has deleted something before", report.Safe)
		}
		return claim("refuses, and sells again afterwards", report.Safe)
	},
	Deploy: onOwnRedis,
	Play:   playRedisOutOfMemory,
}

func playRedisOutOfMemory(ctx context.Context, s *Stage) error {
	client := s.openRedis()
	defer client.Close()
	a, point, err := s.park(ctx, order{client: "A", at: s.Victim})
	if err != nil {
		return err
	}
	s.Stepf("A is parked at %s", point)
	err = s.Together(ctx, "Redis is out of memory", func(ctx context.Context) error {
		return client.ConfigSet(ctx, "maxmemory", "1").Err()
	})
	if err != nil {
		return err
	}
	if err := s.release(ctx, a); err != nil {
		return err
	}
	if err := s.buyWithoutMemory(ctx, client); err != nil {
		return err
	}
	err = s.Mend(ctx, "there is room again", func(ctx context.Context) error {
		return client.ConfigSet(ctx, "maxmemory", "0").Err()
	})
	if err != nil {
		return err
	}
	return s.buy(ctx, order{client: "C", at: s.Survivor, count: 3}, time.Now())
}

// buyWithoutMemory has B ask while Redis is out of memory.
func (s *Stage) buyWithoutMemory(ctx context.Context, client *redis.Client) error {
	b, err := s.send(ctx, order{client: "B", at: s.Survivor, count: 2})
	if err != nil {
		return err
	}
	memory, err := usedMemory(ctx, client)
	if err != nil {
		return err
	}
	want := history.Busy
	if s.Strategy.Name == writesWithoutMemory {
		want = history.Sold
	}
	switch {
	case b.Outcome != want:
		s.Failf("Redis uses %d bytes and may use 1 (maxmemory), and B is answered %d %s", memory, b.Status, b.Error)
	case want == history.Sold:
		s.Provef("Redis uses %d bytes and may use 1 (maxmemory), and still grants B the lock", memory)
	default:
		s.Provef("Redis uses %d bytes and may use 1 (maxmemory), and B is refused: %s", memory, b.Error)
	}
	return nil
}

// writesWithoutMemory is the strategy whose lock is granted by a script that removes its caller from the queue first. A
// script that has written may go on writing when memory is short, because Redis does not roll back.
const writesWithoutMemory = "lock-redis-fair"
