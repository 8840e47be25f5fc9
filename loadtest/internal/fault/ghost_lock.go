package fault

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/internal/servers"
	"stock/internal/tcpproxy"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/scenario"
)

// ghostLocks are stories of a client that gives up, but whose request for a lock Redis carries out, so that the client
// does not know that it holds it.
var ghostLocks = []Scenario{{
	Name:    "ghost-lock/stall",
	Title:   "Redis stalls (SIGSTOP), and grants a lock when its client has given up.",
	Applies: keyInOneRedis,
	Claim: func(s scenario.Strategy) Claim {
		switch s.Name {
		case "lock-redis-setnx":
			return claim("leaves a lock without a holder, for ever", report.Unavailable)
		case "lock-redis-expiry", "lock-redis-owner":
			return claim("leaves a lock without a holder, until its lease ends", report.Blocked)
		}
		return claim("takes back what Redis may have granted", report.Safe)
	},
	Missing: processStates,
	Deploy:  deployGhosts,
	Play: func(ctx context.Context, s *Stage) error {
		a, asks, err := s.askForLock(ctx)
		if err != nil {
			return err
		}
		defer asks.Release()
		if err := s.stall(ctx); err != nil {
			return err
		}
		if a.answered() {
			return fmt.Errorf("client A was answered before Redis was stopped: %s", a.op.Error)
		}
		asks.Release() // to the socket of the server, which does not read it yet
		if err := a.wait(); err != nil {
			return err
		}
		select {
		case <-asks.Answered():
			return errors.New("redis answered client A while it was stopped")
		default:
		}
		s.Provef("A was refused before Redis answered its request for the lock, of %d bytes", asks.Bytes())
		if err := s.endStall(ctx); err != nil {
			return err
		}
		return s.buyAfterGhost(ctx, asks)
	},
}, {
	Name:    "ghost-lock/late-request",
	Title:   "A request for a lock is delayed on the wire until its client has given up, and has tried to undo it.",
	Applies: keyInOneRedis,
	Claim: func(s scenario.Strategy) Claim {
		switch s.Name {
		case "lock-redis-setnx":
			return claim("leaves a lock without a holder, for ever", report.Unavailable)
		case "lock-redis-queue":
			return claim("refuses a request that its client has undone", report.Safe)
		}
		return claim("leaves a lock without a holder, until its lease ends", report.Blocked)
	},
	Deploy: deployGhosts,
	Play: func(ctx context.Context, s *Stage) error {
		a, asks, err := s.askForLock(ctx)
		if err != nil {
			return err
		}
		defer asks.Release()
		if err := a.wait(); err != nil {
			return err
		}
		s.Provef("A was refused while the proxy held its request for the lock, of %d bytes", asks.Bytes())
		asks.Release()
		return s.buyAfterGhost(ctx, asks)
	},
}, {
	Name:    "ghost-lock/lost-reply",
	Title:   "The connection is cut when Redis grants a lock, so that its client does not learn of it.",
	Applies: keyInOneRedis,
	Claim: func(s scenario.Strategy) Claim {
		switch s.Name {
		case "lock-redis-setnx":
			return claim("leaves a lock without a holder, for ever", report.Unavailable)
		case "lock-redis-expiry":
			return claim("leaves a lock without a holder, until its lease ends", report.Blocked)
		case "lock-redis-queue":
			return claim("asks again, and is granted the lock that is its own", report.Safe)
		}
		return claim("takes back what Redis may have granted", report.Safe)
	},
	Deploy:    deployGhosts,
	Practices: []Practice{retrySetNX, retryAsOwner},
	Play: func(ctx context.Context, s *Stage) error {
		a, asks, err := s.askForLock(ctx)
		if err != nil {
			return err
		}
		asks.Cut(tcpproxy.BeforeReply)
		if err := answer(ctx, asks); err != nil {
			return err
		}
		s.Provef("the proxy cut the connection when Redis answered A's request for the lock, of %d bytes", asks.Bytes())
		if err := a.wait(); err != nil {
			return err
		}
		return s.buyAfterGhost(ctx, asks)
	},
}}

// ghostWait is how long a client waits for the lock. It is long enough that Redis is stopped before.
const ghostWait = 2 * lease

func deployGhosts(ctx context.Context, l *Lab) (*Deployment, error) {
	return onRedis(oneRedis(servers.RedisOptions{}),
		"--request-timeout="+patientTimeout.String(), "--lock-wait="+ghostWait.String())(ctx, l)
}

// askForLock has A ask for the lock, and holds its request on the wire. The caller releases it.
func (s *Stage) askForLock(ctx context.Context) (*pending, *tcpproxy.Caught, error) {
	// The first request may need more messages: Redis does not know the script yet.
	if _, err := s.send(ctx, order{client: "Z", at: s.Victim}); err != nil {
		return nil, nil, err
	}
	asks := s.Victim.Redis.Catch(func(m tcpproxy.Message) bool { return bytes.Contains(m.Data, argument(s.lockKey())) })
	a := s.start(ctx, order{client: "A", at: s.Victim, timeout: patientTimeout})
	if err := a.caught(ctx, asks); err != nil {
		asks.Release()
		return nil, nil, err
	}
	s.Stepf("the proxy between the victim and Redis holds A's request for the lock")
	return a, asks, nil
}

// buyAfterGhost waits until Redis has carried out A's request for the lock, and has B buy.
func (s *Stage) buyAfterGhost(ctx context.Context, asks *tcpproxy.Caught) error {
	since := time.Now()
	if err := answer(ctx, asks); err != nil {
		return err
	}
	rest, err := s.lockPTTL(ctx, s.redis.master)
	if err != nil {
		return err
	}
	s.Stepf("Redis has answered A's request; the PTTL of the lock is %s", pttl(rest))
	return s.buyAfter(ctx, since, func(client string) (history.Op, error) {
		return s.send(ctx, order{client: client, at: s.Survivor, count: 2})
	})
}

// retrySetNX takes a refusal for that of another holder's lock.
var retrySetNX = Practice{
	Name:  "retry-set-nx",
	Claim: claim("is refused by the lock that its own first request has set", report.Blocked),
	Play: func(ctx context.Context, s *Stage) error {
		return s.playRetriedLock(ctx, func(ctx context.Context, client *redis.Client, key string) error {
			return client.SetArgs(ctx, key, "A", redis.SetArgs{Mode: "NX", TTL: lease}).Err()
		})
	},
}

// retryAsOwner asks for its own lock once more.
var retryAsOwner = Practice{
	Name:  "retry-as-owner",
	Claim: claim("is granted the lock that is its own", report.Safe),
	Play: func(ctx context.Context, s *Stage) error {
		return s.playRetriedLock(ctx, func(ctx context.Context, client *redis.Client, key string) error {
			return lockAsOwner.Eval(ctx, client, []string{key}, "A", lease.Milliseconds()).Err()
		})
	},
}

// stall stops the Redis of the round.
func (s *Stage) stall(ctx context.Context) error {
	return s.Together(ctx, "Redis is stopped", func(ctx context.Context) error {
		return stopServer(ctx, s.redis.master)
	})
}

// endStall lets it go on, when no client waits for it any more.
func (s *Stage) endStall(ctx context.Context) error {
	return s.Mend(ctx, "Redis goes on", func(context.Context) error {
		return s.redis.master.Signal(syscall.SIGCONT)
	})
}

// ghostPatience is how long the next buyer tries: long enough to see that a lock does not end with a lease.
const ghostPatience = 2*lease + time.Second

// buyAfter has the next buyer try until something is sold.
func (s *Stage) buyAfter(ctx context.Context, since time.Time, ask func(client string) (history.Op, error)) error {
	return s.buyWithin(ctx, "B", since, ghostPatience, ask)
}

// lockAsOwner sets the lock unless another owner holds it. It may be carried out twice.
var lockAsOwner = redis.NewScript(`
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])
`)

// playRetriedLock has A ask for the lock with a client that sends a command again if it is not answered, as go-redis
// does unless told not to.
func (s *Stage) playRetriedLock(
	ctx context.Context, lock func(ctx context.Context, client *redis.Client, key string) error,
) error {
	shop, err := s.openShop(ctx)
	if err != nil {
		return err
	}
	defer shop.close()
	proxy, err := tcpproxy.Start(s.redis.master.Addr)
	if err != nil {
		return err
	}
	defer proxy.Close()
	client := redis.NewClient(&redis.Options{Addr: proxy.Addr(), DisableIdentity: true})
	defer client.Close()
	proxy.Select(func(m tcpproxy.Message) bool { return bytes.Contains(m.Data, argument(shop.key)) })
	proxy.Cut(1, tcpproxy.BeforeReply)
	a := s.ask("A", 1)
	err = lock(ctx, client, shop.key)
	if proxy.Armed() || proxy.Count() < 2 {
		return fmt.Errorf("client A has asked %d times: %w", proxy.Count(), err)
	}
	since := time.Now()
	if err := s.sellIfGranted(ctx, shop, a, err); err != nil {
		return err
	}
	return s.buyAfter(ctx, since, func(client string) (history.Op, error) {
		return s.perform(client, 2, func() (int64, error) { return shop.sellWithin(ctx, client, 2, lease/4) }), nil
	})
}

// sellIfGranted ends A's deduction, after its request for the lock ended with refusal.
func (s *Stage) sellIfGranted(ctx context.Context, shop *shop, a *asked, refusal error) error {
	owner, err := shop.holder(ctx)
	switch {
	case err != nil:
		return err
	case owner != "A":
		return fmt.Errorf("the owner of the lock is %q when client A has its answer", owner)
	case errors.Is(refusal, redis.Nil):
		s.Provef("the reply to A's first request was lost, and its second one refused, though the owner of the lock is A")
		a.answer(0, errHeld)
		return nil
	case refusal != nil:
		return refusal
	}
	s.Provef("the reply to A's first request was lost, and its second one granted; the owner of the lock is A")
	units, err := shop.read(ctx)
	if err == nil {
		err = shop.write(ctx, units-1)
	}
	a.answer(units-1, err)
	return shop.unlock(ctx)
}
