package fault

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/internal/tcpproxy"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/scenario"
)

var renewalScenarios = []Scenario{longWork, blackHole, lateRenewal}

// renewedInRedis are the locks that are one key of Redis, and that are renewed while they are held.
var renewedInRedis = []string{
	"lock-redis-watchdog", "lock-redis-pubsub", "lock-redis-fair", "lock-redis-rlock", "lock-redis-fenced",
	"lock-redis-queue",
}

// blackHole is the story of a holder that is cut off from the servers of its lock, and from nothing else.
var blackHole = Scenario{
	Name:    "black-hole",
	Title:   "The network between a holder and its lock's server swallows everything, after a renewal.",
	Applies: only(append([]string{"lock-etcd", "lock-zookeeper"}, renewedInRedis...)...),
	Claim: func(scenario.Strategy) Claim {
		return claim("gives up before its lease ends on the server", report.Blocked)
	},
	Deploy:    patient(),
	Practices: []Practice{renewUntilError},
	Play: func(ctx context.Context, s *Stage) error {
		a := order{client: "A", at: s.Victim, timeout: patientTimeout}
		holder, _, err := s.parkAtFirst(ctx, a, "before-write")
		if err != nil {
			return err
		}
		if slices.Contains(renewedInRedis, s.Strategy.Name) {
			if err := s.awaitRenewal(ctx); err != nil {
				return err
			}
		}
		err = s.Together(ctx, "everything between the victim and the locks' servers is swallowed", s.swallowLocks)
		if err != nil {
			return err
		}
		cut := time.Now()
		if holder.answered() {
			return fmt.Errorf("client A was answered before its connections were cut off: %s", holder.op.Error)
		}
		s.Provef("A was inside at before-write when the proxies began to swallow; nobody could release its lock")
		return s.sellAfter(ctx, holder, cut)
	},
}

// sellAfter has B buy while A, which is cut off since then, is at a pause point. If A is still there when B has bought,
// it goes on, and writes unless it finds that its lease has ended.
func (s *Stage) sellAfter(ctx context.Context, holder *pending, cut time.Time) error {
	bought := make(chan error, 1)
	s.inBackground(func() { bought <- s.buy(ctx, order{client: "B", at: s.Survivor, count: 2}, cut) })
	inside := true
	for waiting := true; waiting; {
		select {
		case err := <-bought:
			if err != nil {
				return err
			}
			waiting = false
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pollInterval):
		}
		parked, err := s.pauses[s.Victim].has(ctx, s.Deployment, s.Victim, holder.request)
		if err != nil {
			return err
		}
		if inside && !parked {
			s.Stepf("A's replica has given up")
		}
		inside = inside && parked
	}
	end := holder.giveUp
	if inside && !s.never {
		s.Stepf("B has bought while A was inside")
		end = func(ctx context.Context) error { return s.resume(ctx, holder) }
	}
	if err := end(ctx); err != nil {
		return err
	}
	_, err := s.send(ctx, order{client: "C", at: s.Survivor})
	return err
}

// swallowLocks cuts the victim off from the servers of its locks, but not from MySQL.
func (s *Stage) swallowLocks(context.Context) error {
	for _, proxy := range []*tcpproxy.Proxy{s.Victim.Redis, s.Victim.Etcd, s.Victim.ZooKeeper} {
		proxy.BlackHole()
	}
	return nil
}

// awaitRenewal waits until the lease of the item's lock starts anew.
func (s *Stage) awaitRenewal(ctx context.Context) error {
	side := s.openRedis()
	defer side.Close()
	last := time.Duration(-1)
	return eventually(ctx, "the lock is renewed", func() (bool, error) {
		rest, err := side.PTTL(ctx, s.lockKey()).Result()
		if err != nil {
			return false, err
		}
		renewed := last > 0 && rest > last
		if renewed {
			s.Stepf("the lock is renewed: its PTTL rises from %s to %s ms", pttl(last), pttl(rest))
		}
		last = rest
		return renewed, nil
	})
}

// renewUntilError renews its lock, and relies on it until a renewal fails. Its client waits for an answer for as long
// as the usual time limit of clients, which is longer than its lease.
var renewUntilError = Practice{
	Name:  "renew-until-error",
	Claim: claim("relies on its lock until a renewal fails", report.Unsafe),
	Play: func(ctx context.Context, s *Stage) error {
		shop, proxy, err := s.openShopAndProxy(ctx)
		if err != nil {
			return err
		}
		defer shop.close()
		defer proxy.Close()
		const answerLimit = 3 * time.Second // the default of go-redis
		options := s.Addresses.Account.RedisOptions(proxy.Addr()).Simple()
		options.MaxRetries, options.ReadTimeout = -1, answerLimit
		client := redis.NewClient(options)
		defer client.Close()

		a := s.ask("A", 1)
		if err := client.SetArgs(ctx, shop.key, "A", redis.SetArgs{Mode: "NX", TTL: lease}).Err(); err != nil {
			return err
		}
		units, err := shop.read(ctx)
		if err != nil {
			return err
		}
		if err := client.PExpire(ctx, shop.key, lease).Err(); err != nil {
			return err
		}
		s.Stepf("A has read %d, and has renewed its lock", units)
		proxy.BlackHole()
		renewal := make(chan error, 1)
		s.inBackground(func() { renewal <- client.PExpire(ctx, shop.key, lease).Err() })
		if err := shop.awaitFree(ctx); err != nil {
			return err
		}
		free := time.Now()
		s.perform("B", 2, func() (int64, error) { return shop.sell(ctx, "B", 2) })
		select {
		case err := <-renewal:
			return fmt.Errorf("client A learned too early that its renewal had failed: %w", err)
		default:
			s.Provef("the lock has expired in Redis, and the renewal that the proxy swallowed has not failed yet")
		}
		a.answer(units-1, shop.write(ctx, units-1))
		err = <-renewal
		s.Stepf("%.1f s after the lock expired, A's renewal fails: %v", time.Since(free).Seconds(), err)
		return nil
	},
}

// lateRenewal is the story of a renewal that arrives after the release.
var lateRenewal = Scenario{
	Name:    "late-renewal",
	Title:   "A renewal is delayed on the wire until its holder has released the lock.",
	Applies: only(renewedInRedis...),
	Claim: func(scenario.Strategy) Claim {
		return claim("renews a lock only if it is its own", report.Safe)
	},
	Deploy: patient(),
	Play: func(ctx context.Context, s *Stage) error {
		side := s.openRedis()
		defer side.Close()
		holder, _, err := s.parkAtFirst(ctx, order{client: "A", at: s.Victim}, "before-write")
		if err != nil {
			return err
		}
		// The script must be known to Redis, or it would ask for the text of the one that comes late.
		if err := s.awaitRenewal(ctx); err != nil {
			return err
		}
		late := s.Victim.Redis.Catch(s.renewsLock)
		defer late.Release()
		if err := arrive(ctx, late); err != nil {
			return fmt.Errorf("the renewal of A is not on the wire: %w", err)
		}
		s.Stepf("the proxy holds A's next renewal of %d bytes", late.Bytes())
		if err := s.release(ctx, holder); err != nil {
			return err
		}
		return s.arriveAfterRelease(ctx, side, func() error {
			late.Release()
			return answer(ctx, late)
		}, func(client string) (history.Op, error) {
			return s.send(ctx, order{client: client, at: s.Survivor, count: 2})
		})
	},
	Practices: []Practice{renewBySet},
}

// arriveAfterRelease has a renewal arrive at a lock that nobody holds, and then B buy.
func (s *Stage) arriveAfterRelease(
	ctx context.Context, side *redis.Client, arrive func() error, buy func(client string) (history.Op, error),
) error {
	held, err := side.Exists(ctx, s.lockKey()).Result()
	if err != nil {
		return err
	}
	if err := arrive(); err != nil {
		return err
	}
	arrived := time.Now()
	rest, err := side.PTTL(ctx, s.lockKey()).Result()
	if err != nil {
		return err
	}
	if held == 0 {
		s.Provef("A's renewal has arrived after its release; the PTTL of the lock is now %s", pttl(rest))
	}
	return s.buyWithin(ctx, "B", arrived, patience, buy)
}

// renewBySet renews its lock by setting the key anew, whether or not it exists.
var renewBySet = Practice{
	Name:  "renew-by-set",
	Claim: claim("leaves a lock without a holder", report.Blocked),
	Play: func(ctx context.Context, s *Stage) error {
		shop, proxy, err := s.openShopAndProxy(ctx)
		if err != nil {
			return err
		}
		defer shop.close()
		defer proxy.Close()
		renewing := openRedisAs(s.Addresses.Account, proxy.Addr())
		defer renewing.Close()
		late := proxy.Catch(func(m tcpproxy.Message) bool { return bytes.Contains(m.Data, argument(shop.key)) })
		defer late.Release()
		renewed := make(chan error, 1)
		s.perform("A", 1, func() (int64, error) {
			if err := shop.lock(ctx, "A"); err != nil {
				return 0, err
			}
			s.inBackground(func() { renewed <- renewing.Set(ctx, shop.key, "A", lease).Err() })
			if err := arrive(ctx, late); err != nil {
				return 0, err
			}
			s.Stepf("the proxy holds A's renewal of %d bytes", late.Bytes())
			units, err := shop.read(ctx)
			if err == nil {
				err = shop.write(ctx, units-1)
			}
			if err == nil {
				err = shop.unlock(ctx)
			}
			return units - 1, err
		})
		return s.arriveAfterRelease(ctx, shop.redis, func() error {
			late.Release()
			return <-renewed
		}, func(client string) (history.Op, error) {
			return s.perform(client, 2, func() (int64, error) { return shop.sellWithin(ctx, client, 2, lease/4) }), nil
		})
	},
}
