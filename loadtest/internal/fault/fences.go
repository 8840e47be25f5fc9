package fault

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"stock/loadtest/internal/history"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/scenario"
)

var fenceScenarios = []Scenario{fenceCounterLost, writeOnlyFence}

// fenceCounterLost is the story of a Redis that forgets the last token.
var fenceCounterLost = Scenario{
	Name:    "fence-counter-lost",
	Title:   "Redis loses its data, and with it the last fencing token (FLUSHALL).",
	Applies: only("lock-redis-fenced", "lock-redis-queue"),
	Claim: func(scenario.Strategy) Claim {
		return claim("makes the token from the time, so that it rises all the same", report.Safe)
	},
	Deploy: onOwnRedis,
	Play: func(ctx context.Context, s *Stage) error {
		if err := s.mustBuy(ctx, order{client: "A", at: s.Victim}); err != nil {
			return err
		}
		before := s.last()
		if err := s.flushRedis(ctx); err != nil {
			return err
		}
		if err := s.buy(ctx, order{client: "B", at: s.Survivor, count: 2}, time.Now()); err != nil || s.never {
			return err
		}
		after := s.last()
		if after.Token <= before.Token {
			s.Failf("A's token was %d, and B's is %d, which is not greater", before.Token, after.Token)
			return nil
		}
		s.Stepf("A's token was %d, and B's is %d", before.Token, after.Token)
		return nil
	},
	Practices: []Practice{{
		Name:  "incr-token",
		Claim: claim("refuses everybody: its tokens begin again from 1", report.Unavailable),
		Play:  playCounterLost,
	}},
}

// playCounterLost has A buy before Redis forgets the counter, and B in vain after that.
func playCounterLost(ctx context.Context, s *Stage) error {
	shop, err := s.openShop(ctx)
	if err != nil {
		return err
	}
	defer shop.close()
	// The item has been sold for a while: a counter that begins again does not catch up soon.
	if err := shop.redis.Set(ctx, shop.key+":token", 1_000_000, 0).Err(); err != nil {
		return err
	}
	var answer error
	sell := func() (remaining int64, err error) {
		remaining, answer = shop.sellFenced(ctx, "holder", 1)
		return remaining, answer
	}
	if s.perform("A", 1, sell); answer != nil {
		return fmt.Errorf("client A was not sold anything: %w", answer)
	}
	if err := s.flushRedis(ctx); err != nil {
		return err
	}
	return s.buyWithin(ctx, "B", time.Now(), time.Second, func(client string) (history.Op, error) {
		time.Sleep(100 * time.Millisecond) // a few tries are enough
		op := s.perform(client, 1, sell)
		if answer != nil && !errors.Is(answer, errStale) {
			return op, fmt.Errorf("client %s was refused for another reason than its token: %w", client, answer)
		}
		return op, nil
	})
}

// flushRedis makes the Redis of the round forget everything.
func (s *Stage) flushRedis(ctx context.Context) error {
	client := s.openRedis()
	defer client.Close()
	pattern := fmt.Sprintf("*{%d}*", s.Item)
	before, err := client.Keys(ctx, pattern).Result()
	if err != nil {
		return err
	}
	err = s.Together(ctx, "Redis forgets everything", func(ctx context.Context) error {
		return client.FlushAll(ctx).Err()
	})
	if err != nil {
		return err
	}
	after, err := client.Keys(ctx, pattern).Result()
	if err == nil && len(before) > 0 && len(after) == 0 {
		s.Provef("FLUSHALL has deleted all keys of the item: %s", strings.Join(before, ", "))
	}
	return err
}

// last is the request that was answered last.
func (s *Stage) last() history.Op {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ops[len(s.ops)-1]
}

// writeOnlyFence is the story of a write that comes late, but before the next holder has shown its token to the store.
var writeOnlyFence = Scenario{
	Name:    "write-only-fence",
	Title:   "A holder's write comes late, between the read and the write of the next holder, who has a newer token.",
	Applies: noStrategy,
	Practices: []Practice{
		{
			Name:  "fence-in-write",
			Claim: claim("accepts a late write until a newer token has come", report.Unsafe),
			Play: func(ctx context.Context, s *Stage) error {
				return s.playLateBetween(ctx, (*shop).readWithToken, (*shop).writeUnlessNewer)
			},
		},
		{
			Name:  "register-then-read",
			Claim: claim("refuses a late write once the next holder has read", report.Safe),
			Play: func(ctx context.Context, s *Stage) error {
				return s.playLateBetween(ctx, (*shop).register, (*shop).writeIfRegistered)
			},
		},
		{
			Name:  "fence-and-stock-in-write",
			Claim: claim("refuses the next holder, which has read before the late write", report.Safe),
			Play: func(ctx context.Context, s *Stage) error {
				return s.playLateBetween(ctx, (*shop).readWithToken, (*shop).writeUnlessChanged)
			},
		},
	},
}

// How a practice reads and writes under a fence. The token is that of the holder.
type (
	fencedRead  func(s *shop, ctx context.Context, token int64) (units int64, err error)
	fencedWrite func(s *shop, ctx context.Context, token, read, units int64) error
)

// playLateBetween has A's write arrive between B's read and B's write.
func (s *Stage) playLateBetween(ctx context.Context, read fencedRead, write fencedWrite) error {
	shop, err := s.openShop(ctx)
	if err != nil {
		return err
	}
	defer shop.close()
	enter := func(client string) (token, units int64, err error) {
		if token, err = shop.lockFenced(ctx, client); err != nil {
			return 0, 0, err
		}
		units, err = read(shop, ctx, token)
		if err == nil {
			s.Stepf("%s has the lock with token %d, and has read %d", client, token, units)
		}
		return token, units, err
	}
	a := s.ask("A", 1)
	tokenA, unitsA, err := enter("A")
	if err != nil {
		return err
	}
	if err := shop.awaitFree(ctx); err != nil {
		return err
	}
	b := s.ask("B", 2)
	tokenB, unitsB, err := enter("B")
	if err != nil {
		return err
	}
	s.Provef("A's lock has expired, and B holds it with token %d, when A writes with token %d", tokenB, tokenA)
	a.answer(unitsA-1, write(shop, ctx, tokenA, unitsA, unitsA-1))
	b.answer(unitsB-2, write(shop, ctx, tokenB, unitsB, unitsB-2))
	return nil
}

// errStale is a refusal: the store knows a newer token, or another stock.
var errStale = errors.New("the fence refuses the write")

// lockFenced asks for the lock once, and counts tokens with INCR.
func (s *shop) lockFenced(ctx context.Context, owner string) (token int64, err error) {
	if err := s.lock(ctx, owner); err != nil {
		return 0, err
	}
	return s.redis.Incr(ctx, s.key+":token").Result()
}

// sellFenced is sell with a token that is registered before the stock is read.
func (s *shop) sellFenced(ctx context.Context, owner string, count int64) (remaining int64, err error) {
	token, err := s.lockFenced(ctx, owner)
	if err != nil {
		return 0, err
	}
	units, err := s.register(ctx, token)
	if err == nil {
		err = s.writeIfRegistered(ctx, token, units, units-count)
	}
	return units - count, errors.Join(err, s.unlock(ctx))
}

// readWithToken does not show the token to the store.
func (s *shop) readWithToken(ctx context.Context, _ int64) (int64, error) { return s.read(ctx) }

// register notes the token, unless the store knows a newer one, and reads the stock.
func (s *shop) register(ctx context.Context, token int64) (units int64, err error) {
	if err := s.update(ctx, "SET fence = ? WHERE goods_id = ? AND fence < ?", token, s.item, token); err != nil {
		return 0, err
	}
	return s.read(ctx)
}

// writeIfRegistered writes if no other token has been registered.
func (s *shop) writeIfRegistered(ctx context.Context, token, _, units int64) error {
	return s.update(ctx, "SET stock = ?, version = version + 1 WHERE goods_id = ? AND fence = ?", units, s.item, token)
}

// writeUnlessNewer writes and notes the token, unless the store knows a newer one.
func (s *shop) writeUnlessNewer(ctx context.Context, token, _, units int64) error {
	return s.update(ctx, "SET stock = ?, version = version + 1, fence = ? WHERE goods_id = ? AND fence < ?",
		units, token, s.item, token)
}

// writeUnlessChanged is writeUnlessNewer if the stock is still what was read.
func (s *shop) writeUnlessChanged(ctx context.Context, token, read, units int64) error {
	return s.update(ctx, "SET stock = ?, version = version + 1, fence = ? WHERE goods_id = ? AND stock = ? AND fence < ?",
		units, token, s.item, read, token)
}

// update fails with errStale if it finds no row.
func (s *shop) update(ctx context.Context, setWhere string, args ...any) error {
	result, err := s.db.ExecContext(ctx, "UPDATE good_stock "+setWhere, args...)
	if err != nil {
		return err
	}
	rows, err := result.RowsAffected()
	if err == nil && rows == 0 {
		err = fmt.Errorf("%w of its holder", errStale)
	}
	return err
}
