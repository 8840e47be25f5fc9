package mutants

import (
	"context"
	"database/sql/driver"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/internal/locks"
	"stock/internal/stock"
)

var lockBugs = []Mutant{
	mutant("lock-redis-lua-sometimes", "lock-redis-lua", "1 request in 20 does not take the lock.",
		onLock(20, func(ctx context.Context, key string, _ lockFunc) (*locks.Lease, error) {
			return grant(ctx, key)
		})),
	mutant("lock-redis-owner-one-replica", "lock-redis-owner", "The second replica does not take the lock.",
		func(p *plan) {
			p.lock = func(ctx context.Context, key string, next lockFunc) (*locks.Lease, error) {
				if !p.isSecond() {
					return next(ctx, key)
				}
				p.strikes.Add(1)
				return grant(ctx, key)
			}
		}),
	mutant("lock-redis-pubsub-early", "lock-redis-pubsub", "The lock is released before the stock is read.",
		onLock(1, func(ctx context.Context, key string, next lockFunc) (*locks.Lease, error) {
			lease, err := next(ctx, key)
			if err != nil {
				return nil, err
			}
			_ = lease.Unlock()
			return grant(ctx, key)
		})),
	mutant("lock-redis-expiry-short", "lock-redis-expiry",
		"The lease ends after a millisecond, which its holder does not notice.",
		both(
			func(p *plan) {
				p.deps = func(d *stock.Deps) { d.Lease, d.Poll = time.Millisecond, time.Millisecond }
			},
			onLock(1, func(ctx context.Context, key string, next lockFunc) (*locks.Lease, error) {
				if _, err := next(ctx, key); err != nil {
					return nil, err
				}
				return grant(ctx, key)
			}))),
	mutant("lock-redis-setnx-always", "lock-redis-setnx", "SET lacks NX: every request is granted the lock.",
		onCommand("set", "NX", func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			args := cmd.Args()
			set := redis.NewStatusCmd(ctx, args[:len(args)-1]...)
			err := next(ctx, set)
			cmd.(*redis.StatusCmd).SetVal(set.Val())
			cmd.SetErr(err)
			return err
		})),
	mutant("lock-redis-watchdog-late-write", "lock-redis-watchdog",
		"The stock is written 2 ms after the lock was released.",
		onScript("error_reply('TAKEN '", writeLate), onRedis),
	mutant("lock-redis-fair-two-keys", "lock-redis-fair", "Half of the requests take a lock of another name.",
		onKey(alternate)),
	mutant("lock-redlock-own-key", "lock-redlock", "Each replica has a lock of its own.",
		onKey(ofReplica)),
	mutant("lock-mysql-getlock-unasked", "lock-mysql-getlock", "GET_LOCK is never called.",
		rewrite(1, "SELECT GET_LOCK(?, ?)", "SELECT ? <> ?")),
	mutant("lock-redis-reentrant-stale-read", "lock-redis-reentrant",
		"1 read in 20 returns the stock of the read before.",
		func(p *plan) {
			var last sync.Map // by item
			strikes := p.every(20)
			p.row = func(s *statement, row []driver.Value) {
				if !s.contains("SELECT stock FROM good_stock") {
					return
				}
				id, _ := s.args[0].Value.(int64)
				if before, known := last.Swap(id, row[0]); known && strikes() {
					row[0] = before
				}
			}
		}),
	mutant("lock-redis-owner-loses-a-write", "lock-redis-owner", "1 write in 100 is confirmed and not made.",
		instead(100, overwrites, unsent(1))),
}

// A fence has nothing to do as long as its lock works. So most of these locks fail, and the fence too.
var fenceBugs = []Mutant{
	mutant("lock-redis-fenced-unfenced", "lock-redis-fenced",
		"Half of the requests take a lock of another name, and the fence accepts any write.",
		both(onKey(alternate), rewrite(1, fences, fencesAny))),
	mutant("lock-redis-queue-token-alone", "lock-redis-queue",
		"Half of the requests take a lock of another name, and the fence checks the token alone.",
		both(onKey(alternate), rewrite(1, fences, fencesTokens))),
	mutant("lock-etcd-unfenced", "lock-etcd",
		"Each replica has a lock of its own, and the fence checks the stock alone.",
		both(onKey(ofReplica), rewrite(1, fences, fencesStock))),
	mutant("lock-redis-fenced-two-keys", "lock-redis-fenced",
		"Half of the requests take a lock of another name; the fence works.",
		onKey(alternate)),
	mutant("lock-redis-fenced-falling", "lock-redis-fenced",
		"Tokens do not rise with each grant, and the fence accepts any.",
		both(
			rewriteLua(1, "math.max(last + 1, now)", "now - 1000000 * (now % 3)"),
			rewrite(1, "fence < ?", "fence < ? OR TRUE"))),
	mutant("lock-redis-fenced-no-token", "lock-redis-fenced", "The lock has no tokens, and the fence accepts that.",
		both(onLock(1, withoutToken), rewrite(1, "fence < ?", "fence <= ?"))),
	mutant("lock-redis-fenced-in-redis", "lock-redis-fenced",
		"Half of the requests take a lock of another name, and the script that writes does not look at the fence.",
		both(onKey(alternate), rewriteLua(1, "elseif fenced then", "elseif false then")), onRedis),
}

const (
	// fences is in the statement that writes through a fence.
	fences = "AND stock = ? AND (fence_issuer <> ? OR fence < ?)"
	// fencesTokens accepts a write whatever the stock is.
	fencesTokens = "AND (stock = ? OR TRUE) AND (fence_issuer <> ? OR fence < ?)"
	// fencesStock accepts any token.
	fencesStock = "AND stock = ? AND (fence_issuer <> ? OR fence < ? OR TRUE)"
	// fencesAny accepts any write.
	fencesAny = "AND (stock = ? OR TRUE) AND (fence_issuer <> ? OR fence < ? OR TRUE)"
)

// grant returns a lock that excludes nobody.
func grant(ctx context.Context, key string) (*locks.Lease, error) { return locks.None{}.Lock(ctx, key) }

// onLock takes the place of every n-th lock.
func onLock(n int64, instead around[string, *locks.Lease]) change {
	return func(p *plan) { p.lock = onNth(p, n, instead) }
}

// onKey changes the name of the lock.
func onKey(edit func(p *plan, number int64, key string) string) change {
	return func(p *plan) {
		var number atomic.Int64
		p.lock = func(ctx context.Context, key string, next lockFunc) (*locks.Lease, error) {
			p.strikes.Add(1)
			return next(ctx, edit(p, number.Add(1), key))
		}
	}
}

func alternate(_ *plan, number int64, key string) string {
	return strings.Replace(key, ":", strconv.FormatInt(number%2, 10)+":", 1)
}

func ofReplica(p *plan, _ int64, key string) string {
	return strings.Replace(key, ":", p.replica+":", 1)
}

// writeLate answers the script that writes at once, and sends it later.
func writeLate(ctx context.Context, cmd *redis.Cmd, next redis.ProcessHook) error {
	late := redis.NewCmd(ctx, cmd.Args()...)
	time.AfterFunc(2*time.Millisecond, func() { _ = next(ctx, late) })
	cmd.SetVal("OK")
	return nil
}
