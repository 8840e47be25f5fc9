package fault

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/internal/servers"
	"stock/internal/tcpproxy"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/scenario"
)

// grantedTwiceScenarios are stories of a Redis that forgets a lock, and grants it again while its holder is inside.
var grantedTwiceScenarios = []Scenario{
	redisRestarts("empty", servers.RedisOptions{}, "It keeps nothing on disk.", lockLost),
	redisRestarts("aof", servers.RedisOptions{AOF: true, Fsync: "always"},
		"It writes an append-only file, and flushes it after each command (appendfsync always).", lockKept),
	lockEvicted("volatile-lru"),
	lockEvicted("allkeys-lru"),
	lockEvicted("noeviction"),
}

// lockLost is claimed if Redis forgets the lock: only a fence prevents that two holders sell.
func lockLost(s scenario.Strategy) Claim {
	if s.Claim.LateWrite == "refused" {
		return claim("the store refuses the late holder's token", report.Safe)
	}
	return claim("grants the lock twice", report.Unsafe)
}

// lockKept is claimed if Redis keeps the lock.
func lockKept(scenario.Strategy) Claim { return claim("keeps the lock", report.Safe) }

// Times of the replicas of these stories. No lease ends as long as a story lasts, so that nothing but the fault can
// free a lock.
const (
	endlessLease = patientTimeout
	shortWait    = time.Second // for a lock
)

// onEndlessLeases deploys on a Redis of the round's own.
func onEndlessLeases(start startRedis) func(context.Context, *Lab) (*Deployment, error) {
	return onRedis(start, "--lease="+endlessLease.String(), "--request-timeout="+patientTimeout.String(),
		"--lock-wait="+shortWait.String())
}

// lateHolder is a client whose write is on its way to MySQL.
type lateHolder struct {
	*pending
	write *tcpproxy.Caught
}

// holdWrite has A read the stock, and holds A's write on the wire. The caller releases it. A waits no longer than
// timeout for its answer; 0 means clientTimeout.
func (s *Stage) holdWrite(ctx context.Context, timeout time.Duration) (lateHolder, error) {
	write := s.storeProxy(s.Victim).Catch(s.writesStock)
	a := lateHolder{s.start(ctx, order{client: "A", at: s.Victim, timeout: timeout}), write}
	if err := a.caught(ctx, write); err != nil {
		write.Release()
		return a, err
	}
	s.Stepf("A has read the stock, and the proxy between the victim and %s holds its write of %d bytes", s.Store,
		write.Bytes())
	return a, nil
}

// land lets A's write go on, and waits until A is answered.
func (s *Stage) land(ctx context.Context, a lateHolder) error {
	a.write.Release()
	if err := answer(ctx, a.write); err != nil {
		return err
	}
	s.Stepf("A's write has reached %s", s.Store)
	return a.wait()
}

// buyBeforeWrite has B buy before A's write goes on, and C after that.
func (s *Stage) buyBeforeWrite(ctx context.Context, a lateHolder) error {
	// B buys another count than A: if both left the same stock, nobody could tell that one was lost.
	if err := s.buy(ctx, order{client: "B", at: s.Survivor, count: 2}, time.Now()); err != nil {
		return err
	}
	if err := s.land(ctx, a); err != nil {
		return err
	}
	_, err := s.send(ctx, order{client: "C", at: s.Survivor})
	return err
}

// forget has a fault strike while A is inside. The lock is on the server before, and should be on the server after.
func (s *Stage) forget(
	ctx context.Context, a lateHolder, before, after *servers.Redis, what string, strike func(context.Context) error,
) error {
	rest, err := s.lockPTTL(ctx, before)
	switch {
	case err != nil:
		return err
	case rest == noKey:
		return fmt.Errorf("client A is inside, but its lock %s is not in Redis", s.lockKey())
	}
	asked := time.Now()
	if err := s.Together(ctx, what, strike); err != nil {
		return err
	}
	left, err := s.lockPTTL(ctx, after)
	switch {
	case err != nil:
		return err
	case a.answered():
		return fmt.Errorf("client A was answered before the fault struck: %s", a.op.Error)
	case rest > 0 && time.Since(asked) >= rest:
		return fmt.Errorf("the lease of client A may have ended by itself, after %v", time.Since(asked))
	}
	s.Provef("A was inside when %s; the PTTL of its lock was %s before, and is %s now", what, pttl(rest), pttl(left))
	return nil
}

// arriveLate has B ask for the lock before A's write arrives, and others buy after that.
func (s *Stage) arriveLate(ctx context.Context, a lateHolder) error {
	sold, err := s.askMeanwhile(ctx, a)
	if err != nil {
		return err
	}
	return s.buyOn(ctx, sold)
}

// askMeanwhile has B ask for the lock. When B has sold, or was not granted the lock, A's write goes on.
func (s *Stage) askMeanwhile(ctx context.Context, a lateHolder) (sold bool, err error) {
	// B buys another count than A: if both left the same stock, nobody could tell that one was lost.
	sold, err = s.tryToBuy(ctx, order{client: "B", at: s.Survivor, count: 2}, time.Now(), 2*shortWait)
	if err != nil {
		return sold, err
	}
	s.blocked = 0 // nobody should buy while A is inside
	return sold, s.land(ctx, a)
}

// buyOn has B buy, if it was not granted the lock before, and C after that.
func (s *Stage) buyOn(ctx context.Context, sold bool) error {
	if !sold {
		if err := s.buy(ctx, order{client: "B-again", at: s.Survivor, count: 2}, time.Now()); err != nil {
			return err
		}
	}
	_, err := s.send(ctx, order{client: "C", at: s.Survivor})
	return err
}

// redisRestarts is the story of a Redis that crashes.
func redisRestarts(
	variant string, o servers.RedisOptions, disk string, claimed func(scenario.Strategy) Claim,
) Scenario {
	return Scenario{
		Name:    "redis-restarts/" + variant,
		Title:   "Redis is killed and restarted while a holder's write is on its way (SIGKILL). " + disk,
		Applies: keyInOneRedis,
		Claim:   claimed,
		Deploy:  onEndlessLeases(oneRedis(o)),
		Play: func(ctx context.Context, s *Stage) error {
			a, err := s.holdWrite(ctx, patientTimeout)
			if err != nil {
				return err
			}
			defer a.write.Release()
			master := s.redis.master
			if err := s.forget(ctx, a, master, master, "Redis was killed and restarted", master.Restart); err != nil {
				return err
			}
			return s.arriveLate(ctx, a)
		},
	}
}

// lockEvicted is the story of a Redis that runs out of memory.
func lockEvicted(policy string) Scenario {
	return Scenario{
		Name: "lock-evicted/" + policy,
		Title: "Redis runs out of memory while a holder's write is on its way. Its policy is " + policy +
			" (maxmemory-policy).",
		Applies: keyInOneRedis,
		Claim: func(s scenario.Strategy) Claim {
			switch {
			case policy == "noeviction":
				return claim("refuses new keys, and keeps the lock", report.Safe)
			case policy == "volatile-lru" && s.Claim.HolderCrash == "blocks-forever":
				return claim("keeps the lock, because it does not expire", report.Safe)
			}
			return lockLost(s)
		},
		Deploy: onEndlessLeases(oneRedis(servers.RedisOptions{Args: []string{"--maxmemory-policy", policy}})),
		Play: func(ctx context.Context, s *Stage) error {
			a, err := s.holdWrite(ctx, patientTimeout)
			if err != nil {
				return err
			}
			defer a.write.Release()
			master := s.redis.master
			if err := s.forget(ctx, a, master, master, "Redis ran out of memory", s.fillRedis); err != nil {
				return err
			}
			if err := s.ranOutOfMemory(ctx); err != nil {
				return err
			}
			return s.arriveLate(ctx, a)
		},
	}
}

// What fillRedis writes.
const (
	fillMemory = 4 << 20 // bytes that Redis may use in addition
	fillValue  = 8 << 10 // bytes of a value
	fillBatch  = 64      // values in one round trip
)

// fillRedis writes until Redis has evicted every lock, or refuses to write more. It then lifts the limit again, so that
// nothing else is refused for want of memory.
func (s *Stage) fillRedis(ctx context.Context) error {
	client := openRedis(s.redis.master.Addr)
	defer client.Close()
	used, err := usedMemory(ctx, client)
	if err != nil {
		return err
	}
	if err := client.ConfigSet(ctx, "maxmemory", strconv.FormatInt(used+fillMemory, 10)).Err(); err != nil {
		return err
	}
	value := strings.Repeat("x", fillValue)
	for written := 0; ; written += fillBatch {
		_, err := client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for i := range fillBatch {
				pipe.Set(ctx, fmt.Sprintf("filler:%d", written+i), value, 0)
			}
			return nil
		})
		if err != nil && !redis.IsOOMError(err) {
			return err
		}
		locks, keysErr := client.Keys(ctx, "lock-redis-*").Result()
		switch {
		case keysErr != nil:
			return keysErr
		case err != nil || len(locks) == 0:
			return client.ConfigSet(ctx, "maxmemory", "0").Err()
		}
	}
}

// usedMemory returns how many bytes Redis uses.
func usedMemory(ctx context.Context, client *redis.Client) (int64, error) {
	info := client.InfoMap(ctx, "memory")
	if info.Err() != nil {
		return 0, info.Err()
	}
	return strconv.ParseInt(info.Item("Memory", "used_memory"), 10, 64)
}

// ranOutOfMemory returns an error unless Redis has evicted keys, or refused commands.
func (s *Stage) ranOutOfMemory(ctx context.Context) error {
	client := openRedis(s.redis.master.Addr)
	defer client.Close()
	info, err := client.InfoMap(ctx, "stats", "errorstats").Result()
	if err != nil {
		return err
	}
	evicted, refused := info["Stats"]["evicted_keys"], info["Errorstats"]["errorstat_OOM"]
	if evicted == "0" && refused == "" {
		return errors.New("redis has neither evicted a key nor refused a command for want of memory")
	}
	s.Stepf("evicted_keys of Redis is %s, and its errorstat_OOM is %q", evicted, refused)
	return nil
}
