package fault

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"stock/internal/tcpproxy"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/scenario"
)

// passScenarios are about a holder whose lock is deleted by somebody else, and who is still inside.
var passScenarios = []Scenario{passAfterLoss, lateOrder}

// lockDeleted deploys replicas on which no lease ends by itself.
var lockDeleted = patient("--lease="+endlessLease.String(), "--lock-wait="+(patientTimeout/2).String())

// passAfterLoss is the story of a process that passes a lock to its next caller, and does not have it any more.
var passAfterLoss = Scenario{
	Name: "pass-after-loss",
	Title: "The lock of a holder is deleted and granted to another replica. Then the holder passes it to the next " +
		"caller of its own process.",
	Applies: only("lock-redis-rlock"),
	Claim:   func(scenario.Strategy) Claim { return claim("passes only what it has", report.Safe) },
	Deploy:  lockDeleted,
	Play: func(ctx context.Context, s *Stage) error {
		a, _, err := s.parkAtFirst(ctx, order{client: "A", at: s.Victim}, "before-unlock")
		if err != nil {
			return err
		}
		b := s.start(ctx, order{client: "B", at: s.Victim, count: 2})
		if err := s.deleteLock(ctx, s.Item); err != nil {
			return err
		}
		c, _, err := s.parkAtFirst(ctx, order{client: "C", at: s.Survivor, count: 3}, "after-read")
		if err != nil {
			return err
		}
		pass := s.Victim.Redis.Catch(s.passesLock)
		defer pass.Release()
		released := make(chan error, 1)
		s.inBackground(func() { released <- s.release(ctx, a) })
		if err := a.caught(ctx, pass); err != nil {
			return err
		}
		s.Provef("C was inside when A, who had lost the lock, passed it to B in a message of %d bytes", pass.Bytes())
		asks, forget := s.catchAny([]*tcpproxy.Proxy{s.Victim.Redis}, func(m tcpproxy.Message) bool {
			return bytes.Contains(m.Data, argument(s.lockKey()))
		})
		defer forget()
		pass.Release()
		select {
		case <-asks:
			s.Stepf("B asks Redis for the lock")
		case <-b.done:
		case <-ctx.Done():
			return ctx.Err()
		}
		return errors.Join(<-released, s.release(ctx, c), b.wait())
	},
}

// deleteLock deletes the lock of an item, as an operator does who takes its holder for dead.
func (s *Stage) deleteLock(ctx context.Context, item int64) error {
	side := s.openRedis()
	defer side.Close()
	key := fmt.Sprintf("%s%s:{%d}", s.Addresses.KeyPrefix, s.Strategy.Name, item)
	deleted, err := side.Del(ctx, key).Result()
	if err == nil && deleted != 1 {
		err = fmt.Errorf("the lock %s is not in Redis", key)
	}
	s.Stepf("an operator deletes the lock %s", key)
	return err
}

// passesLock matches the script that makes another caller of the same process the holder. Its command has seven words:
// EVALSHA, the script, the number of keys, the key, two owners and the lease.
func (s *Stage) passesLock(m tcpproxy.Message) bool {
	return bytes.HasPrefix(m.Data, []byte("*7\r\n")) && bytes.Contains(m.Data, argument(s.lockKey())) &&
		bytes.Contains(m.Data, argument(strconv.FormatInt(endlessLease.Milliseconds(), 10)))
}

// lateOrder is the story of an order whose first item nobody else has bought meanwhile.
var lateOrder = Scenario{
	Name: "late-order",
	Title: "A has read both items of its order. Its lock of the second is deleted, and B buys that item before A " +
		"writes both.",
	Applies: only("lock-redis-fenced"),
	Claim:   lockLost,
	Deploy:  lockDeleted,
	Play: func(ctx context.Context, s *Stage) error {
		second, err := s.newItem(ctx)
		if err != nil {
			return err
		}
		lines := []history.Line{{GoodsID: s.Item, Count: 1}, {GoodsID: second, Count: 1}}
		a, _, err := s.parkAtFirst(ctx, order{client: "A", at: s.Victim, lines: lines}, "before-write", "before-commit")
		if err != nil {
			return err
		}
		if err := s.deleteLock(ctx, second); err != nil {
			return err
		}
		b := order{client: "B", at: s.Survivor, lines: []history.Line{{GoodsID: second, Count: 2}}}
		if err := s.mustBuy(ctx, b); err != nil {
			return err
		}
		s.Provef("B has bought the second item, which A has read and not written")
		if err := s.release(ctx, a); err != nil {
			return err
		}
		return s.buy(ctx, order{client: "C", at: s.Survivor, lines: lines}, time.Now())
	},
}
