package fault

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/internal/tcpproxy"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/scenario"
)

// waitScenarios are the failover of Redis, for a client that asks whether the Redis replica has its lock (WAIT).
var waitScenarios = []Scenario{{
	Name: "wait-for-replica/healthy",
	Title: "The master of Redis is killed while a holder is inside, and the Redis replica, which has confirmed the lock " +
		"(WAIT), is promoted.",
	Applies: only("lock-redis-wait"),
	Claim:   lockKept,
	Deploy:  onEndlessLeases(redisPair),
	Practices: []Practice{{
		Name:  "set-then-wait",
		Claim: claim("is granted the lock when the Redis replica has it", report.Safe),
		Play: func(ctx context.Context, s *Stage) error {
			return s.playFailoverAfterWait(ctx, false, false)
		},
	}},
	Play: func(ctx context.Context, s *Stage) error {
		a, err := s.holdWrite(ctx, patientTimeout)
		if err != nil {
			return err
		}
		defer a.write.Release()
		err = s.forget(ctx, a, s.redis.master, s.redis.replica, replicaPromoted, s.redis.failOver)
		if err != nil {
			return err
		}
		sold, err := s.askMeanwhile(ctx, a)
		if err != nil {
			return err
		}
		// Until the promoted one has a Redis replica, it grants nothing.
		err = s.Mend(ctx, "the old master is back, as a Redis replica of the promoted one", s.redis.rejoin)
		if err != nil {
			return err
		}
		return s.buyOn(ctx, sold)
	},
}, {
	Name: "wait-for-replica/cut",
	Title: "The Redis replica receives nothing more. If the lock is granted all the same, the master is killed, and the " +
		"Redis replica is promoted.",
	Applies: only("lock-redis-wait"),
	Claim: func(scenario.Strategy) Claim {
		return claim("is not granted the lock without the Redis replica", report.Unavailable)
	},
	// Requests wait longer for the lock than it waits for the Redis replica, so that it is what gives up.
	Deploy: onRedis(redisPair, "--lease="+endlessLease.String(), "--request-timeout="+patientTimeout.String(),
		"--lock-wait="+(3*waitLimit).String()),
	Practices: []Practice{{
		Name:  "set-then-wait",
		Claim: claim("is not granted the lock without the Redis replica", report.Unavailable),
		Play: func(ctx context.Context, s *Stage) error {
			return s.playFailoverAfterWait(ctx, true, false)
		},
	}, {
		Name:  "wait-on-another-connection",
		Claim: claim("is told of what that connection had seen, which was before the lock", report.Unsafe),
		Play: func(ctx context.Context, s *Stage) error {
			return s.playFailoverAfterWait(ctx, true, true)
		},
	}},
	Play: func(ctx context.Context, s *Stage) error {
		if err := s.cutReplication(ctx); err != nil {
			return err
		}
		waits := s.Victim.Redis.Catch(func(m tcpproxy.Message) bool { return bytes.Contains(m.Data, argument("wait")) })
		defer waits.Release()
		a := s.start(ctx, order{client: "A", at: s.Victim})
		if err := a.caught(ctx, waits); err != nil {
			return err
		}
		waits.Release()
		asked := time.Now()
		if err := a.wait(); err != nil {
			return err
		}
		if a.op.Outcome == history.Sold {
			s.Failf("A was granted the lock while its Redis replica received nothing")
			return nil
		}
		switch rest, err := s.lockPTTL(ctx, s.redis.replica); {
		case err != nil:
			return err
		case rest != noKey:
			return errors.New("the Redis replica has received the lock of client A")
		}
		s.Provef("A had set the lock and sent WAIT, and the Redis replica has not received the lock")
		b := order{client: "B", at: s.Survivor, count: 2}
		return s.buyWithin(ctx, b.client, asked, 4*shortWait, s.sends(ctx, b)) // for a few tries
	},
}}

// waitLimit is how long a client waits for the Redis replica.
const waitLimit = time.Second

// confirmedLock is a lock that is granted only if the Redis replica has it.
type confirmedLock struct {
	*shop
	sets *redis.Conn // sets the lock
	asks *redis.Conn // asks for the Redis replica: WAIT is about what was written before the connection's last command
}

// errUnconfirmed is a refusal: the Redis replica does not have the lock, which is given back.
var errUnconfirmed = errors.New("no Redis replica has the lock")

// openConfirmed opens a confirmedLock. The caller closes it.
func (s *Stage) openConfirmed(ctx context.Context, askAnother bool) (*confirmedLock, error) {
	shop, err := s.openShop(ctx)
	if err != nil {
		return nil, err
	}
	l := &confirmedLock{shop: shop, sets: shop.redis.Conn()}
	l.asks = l.sets
	if askAnother {
		l.asks = shop.redis.Conn()
	}
	for _, conn := range []*redis.Conn{l.sets, l.asks} {
		replicas, err := conn.Wait(ctx, 1, patientTimeout).Result()
		if err == nil && replicas == 0 {
			err = errors.New("the Redis replica is not in sync before the fault")
		}
		if err != nil {
			l.close()
			return nil, err
		}
	}
	if err := awaitAcks(ctx, shop.redis); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// awaitAcks waits until the Redis replica has confirmed all that the master has written so far. WAIT asks for what was
// written before its connection's last command, also by others.
func awaitAcks(ctx context.Context, master *redis.Client) error {
	written := int64(-1)
	return eventually(ctx, "the Redis replica confirms what was written", func() (bool, error) {
		info, err := master.InfoMap(ctx, "replication").Result()
		if err != nil {
			return false, err
		}
		replication := info["Replication"]
		if written < 0 {
			if written, err = strconv.ParseInt(replication["master_repl_offset"], 10, 64); err != nil {
				return false, err
			}
		}
		_, acked, _ := strings.Cut(replication["slave0"], ",offset=")
		acked, _, _ = strings.Cut(acked, ",")
		offset, err := strconv.ParseInt(acked, 10, 64)
		return offset >= written, err
	})
}

func (l *confirmedLock) close() {
	l.sets.Close()
	l.asks.Close()
	l.shop.close()
}

// lock asks for the lock once, and gives it back if no Redis replica has it.
func (l *confirmedLock) lock(ctx context.Context, owner string) error {
	err := l.sets.SetArgs(ctx, l.key, owner, redis.SetArgs{Mode: "NX", TTL: endlessLease}).Err()
	if errors.Is(err, redis.Nil) {
		return errHeld
	}
	if err != nil {
		return err
	}
	replicas, err := l.asks.Wait(ctx, 1, waitLimit).Result()
	if err == nil && replicas == 0 {
		err = errUnconfirmed
	}
	if err != nil {
		return errors.Join(err, l.unlock(ctx))
	}
	return nil
}

// playFailoverAfterWait has the master fail while A is inside, if A is granted the lock.
func (s *Stage) playFailoverAfterWait(ctx context.Context, cut, askAnother bool) error {
	shop, err := s.openConfirmed(ctx, askAnother)
	if err != nil {
		return err
	}
	defer shop.close()
	if cut {
		if err := s.cutReplication(ctx); err != nil {
			return err
		}
	}
	a := s.ask("A", 1)
	if err := shop.lock(ctx, "A"); err != nil {
		a.answer(0, err)
		return s.waitInVain(ctx, shop, err)
	}
	units, err := shop.read(ctx)
	if err != nil {
		return err
	}
	s.Stepf("A is granted the lock, and has read %d", units)
	if err := s.Together(ctx, replicaPromoted, s.redis.failOver); err != nil {
		return err
	}
	promoted := *shop.shop
	promoted.redis = openRedis(s.redis.replica.Addr)
	defer promoted.redis.Close()
	owner, err := promoted.holder(ctx)
	if err != nil {
		return err
	}
	s.Provef("A was inside when the master was killed; on the promoted Redis replica, the owner of the lock is %q", owner)
	first := s.perform("B", 2, func() (int64, error) { return promoted.sell(ctx, "B", 2) })
	a.answer(units-1, shop.write(ctx, units-1))
	if first.Outcome == history.Sold {
		return nil
	}
	if err := promoted.unlock(ctx); err != nil {
		return err
	}
	s.perform("B-again", 2, func() (int64, error) { return promoted.sell(ctx, "B", 2) })
	return nil
}

// waitInVain has B ask for the lock, after A was refused.
func (s *Stage) waitInVain(ctx context.Context, shop *confirmedLock, refusal error) error {
	if !errors.Is(refusal, errUnconfirmed) {
		return fmt.Errorf("the lock of client A: %w", refusal)
	}
	s.Provef("A has set the lock, and WAIT says that no Redis replica has it")
	refused := time.Now()
	return s.buyWithin(ctx, "B", refused, 2*waitLimit, func(client string) (history.Op, error) {
		return s.perform(client, 2, func() (int64, error) { return 0, shop.lock(ctx, client) }), nil
	})
}
