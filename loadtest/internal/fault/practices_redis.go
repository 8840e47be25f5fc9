package fault

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/redis/go-redis/v9"

	"stock/internal/tcpproxy"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/report"
)

// checkThenWrite checks that the lock is still its own before it writes. Nothing keeps the lease from ending between
// the two.
var checkThenWrite = Practice{
	Name:  "check-then-write",
	Claim: claim("loses-updates", report.Unsafe),
	Play: func(ctx context.Context, s *Stage) error {
		shop, err := s.openShop(ctx)
		if err != nil {
			return err
		}
		defer shop.close()
		a := s.ask("A", 1)
		if err := shop.lock(ctx, "A"); err != nil {
			return err
		}
		units, err := shop.read(ctx)
		if err != nil {
			return err
		}
		switch holder, err := shop.holder(ctx); {
		case err != nil:
			return err
		case holder != "A":
			return fmt.Errorf("the lock of client A is lost before its check: %q holds it", holder)
		}
		s.Stepf("A has read %d, and has checked that the lock is still its own", units)
		if err := shop.awaitFree(ctx); err != nil {
			return err
		}
		s.Provef("the key of the lock has expired before A writes")
		s.perform("B", 2, func() (int64, error) { return shop.sell(ctx, "B", 2) })
		a.answer(units-1, shop.write(ctx, units-1))
		return nil
	},
}

// crashBeforeExpire is the story of a lock that is set and made to expire in two commands.
var crashBeforeExpire = Scenario{
	Name:    "crash-before-expire",
	Title:   "A client is cut off just after its lock was set, and never returns.",
	Applies: noStrategy,
	Practices: []Practice{{
		Name:  "setnx-then-expire",
		Claim: claim("blocks-forever", report.Unavailable),
		Play: func(ctx context.Context, s *Stage) error {
			return s.playCrashAfterSet(ctx, func(ctx context.Context, client *redis.Client, key string) error {
				if err := client.SetNX(ctx, key, "A", 0).Err(); err != nil {
					return err
				}
				return client.PExpire(ctx, key, lease).Err()
			})
		},
	}, {
		Name:  "set-nx-px",
		Claim: claim("blocks-until-lease-ends", report.Blocked),
		Play: func(ctx context.Context, s *Stage) error {
			return s.playCrashAfterSet(ctx, func(ctx context.Context, client *redis.Client, key string) error {
				if err := client.SetArgs(ctx, key, "A", redis.SetArgs{Mode: "NX", TTL: lease}).Err(); err != nil {
					return err
				}
				return client.Get(ctx, key).Err()
			})
		},
	}},
}

// playCrashAfterSet has a client take the lock by commands of which only the first gets through.
func (s *Stage) playCrashAfterSet(
	ctx context.Context, lock func(ctx context.Context, client *redis.Client, key string) error,
) error {
	shop, proxy, err := s.openShopAndProxy(ctx)
	if err != nil {
		return err
	}
	defer shop.close()
	defer proxy.Close()
	proxy.Select(func(m tcpproxy.Message) bool { return bytes.Contains(m.Data, argument(shop.key)) })
	proxy.Cut(2, tcpproxy.BeforeRequest)
	client := openRedisAs(s.Addresses.Account, proxy.Addr())
	defer client.Close()
	s.perform("A", 1, func() (int64, error) { return 0, lock(ctx, client, shop.key) })
	cut := time.Now()
	rest, err := shop.redis.PTTL(ctx, shop.key).Result()
	if err != nil {
		return err
	}
	if !proxy.Armed() {
		s.Provef("the connection was cut between A's first command and its second; the PTTL of the lock is %s", pttl(rest))
	}
	s.buyWithin("B", cut, lease+time.Second, func(client string) history.Op {
		return s.perform(client, 2, func() (int64, error) { return shop.sellWithin(ctx, client, 2, lease/4) })
	})
	return nil
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
	s.flushRedis()
	s.buyWithin("B", time.Now(), time.Second, func(client string) history.Op {
		time.Sleep(100 * time.Millisecond) // a few tries are enough
		op := s.perform(client, 1, sell)
		if answer != nil && !errors.Is(answer, errStale) {
			s.failf("client %s was refused for another reason than its token: %w", client, answer)
		}
		return op
	})
	return nil
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

// How a practice reads and writes under a fence. The token is that of the holder.
type (
	fencedRead  func(s *shop, ctx context.Context, token int64) (units int64, err error)
	fencedWrite func(s *shop, ctx context.Context, token, read, units int64) error
)

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
		s.background.Go(func() { renewal <- client.PExpire(ctx, shop.key, lease).Err() })
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
		late := s.catch(proxy, mentions(shop.key))
		renewed := make(chan error, 1)
		s.perform("A", 1, func() (int64, error) {
			if err := shop.lock(ctx, "A"); err != nil {
				return 0, err
			}
			s.background.Go(func() { renewed <- renewing.Set(ctx, shop.key, "A", lease).Err() })
			late.arrive()
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
		s.arriveAfterRelease(func() {
			late.Release()
			s.check(<-renewed)
		})
		s.buyWithin("B", time.Now(), patience, func(client string) history.Op {
			return s.perform(client, 2, func() (int64, error) { return shop.sellWithin(ctx, client, 2, lease/4) })
		})
		return nil
	},
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
	s.buyWithin("B", since, ghostPatience, func(client string) history.Op {
		return s.perform(client, 2, func() (int64, error) { return shop.sellWithin(ctx, client, 2, lease/4) })
	})
	return nil
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
	err := l.sets.SetArgs(ctx, l.key, owner, redis.SetArgs{Mode: "NX", TTL: longLease}).Err()
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
		s.cutReplication()
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
	s.strike(replicaPromoted, s.redis.failOver)
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
	s.buyWithin("B", refused, 2*waitLimit, func(client string) history.Op {
		return s.perform(client, 2, func() (int64, error) { return 0, shop.lock(ctx, client) })
	})
	return nil
}

// smallestNumber takes the node with the smallest number for the oldest.
var smallestNumber = Practice{
	Name:  "smallest-number",
	Claim: claim("takes the smallest number for the oldest", report.Unsafe),
	Play: func(ctx context.Context, s *Stage) error {
		queue := zkQueue{path: "/" + s.lockKey()}
		if err := s.zookeeper.create(queue.path); err != nil {
			return err
		}
		s.wrap(queue.path)
		shop, err := s.openShop(ctx)
		if err != nil {
			return err
		}
		defer shop.close()
		if queue.conn, err = s.zookeeper.connect(); err != nil {
			return err
		}
		defer queue.conn.Close()
		a := s.ask("A", 1)
		holder, err := queue.join()
		if err != nil {
			return err
		}
		units, err := shop.read(ctx)
		if err != nil {
			return err
		}
		s.Stepf("A holds the lock with the number %d, and has read %d", number(holder), units)
		s.untilSold("B", time.Now(), patience, func(client string) history.Op {
			return s.perform(client, 2, func() (int64, error) {
				name, err := queue.join()
				if err != nil {
					return 0, err
				}
				s.Provef("A is inside with the number %d, and B enters with the number %d", number(holder), number(name))
				units, err := shop.read(ctx)
				if err == nil {
					err = shop.write(ctx, units-2)
				}
				return units - 2, err
			})
		})
		a.answer(units-1, shop.write(ctx, units-1))
		return nil
	},
}

// create creates a node.
func (z *wrapped) create(node string) error {
	conn, err := z.connect()
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Create(node, nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll))
	return err
}

// zkQueue is a lock by the recipe of ZooKeeper's documentation.
type zkQueue struct {
	conn *zk.Conn
	path string
}

// join asks for the lock once, and returns the name of its node. It does not wait.
func (q zkQueue) join() (name string, err error) {
	node, err := q.conn.Create(q.path+"/"+rand.Text()+"-", nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
	if err != nil {
		return "", err
	}
	names, _, err := q.conn.Children(q.path)
	if err == nil && slices.MinFunc(names, byNumber) != path.Base(node) {
		err = errHeld
	}
	if err != nil {
		return "", errors.Join(err, q.conn.Delete(node, -1))
	}
	return path.Base(node), nil
}

var incrToken = Practice{
	Name:  "incr-token",
	Claim: claim("refuses everybody: its tokens begin again from 1", report.Unavailable),
	Play:  playCounterLost,
}

var waitHealthyPractices = []Practice{{
	Name:  "set-then-wait",
	Claim: claim("is granted the lock when the Redis replica has it", report.Safe),
	Play:  func(ctx context.Context, s *Stage) error { return s.playFailoverAfterWait(ctx, false, false) },
}}

var waitCutPractices = []Practice{{
	Name:  "set-then-wait",
	Claim: claim("is not granted the lock without the Redis replica", report.Unavailable),
	Play:  func(ctx context.Context, s *Stage) error { return s.playFailoverAfterWait(ctx, true, false) },
}, {
	Name:  "wait-on-another-connection",
	Claim: claim("is told of what that connection had seen, which was before the lock", report.Unsafe),
	Play:  func(ctx context.Context, s *Stage) error { return s.playFailoverAfterWait(ctx, true, true) },
}}

// wrap brings the counter of a queue to its end, together with those of the other cells.
func (s *Stage) wrap(queue string) {
	z := s.zookeeper
	z.mu.Lock()
	z.queues = append(z.queues, queue)
	z.mu.Unlock()
	s.strike("ZooKeeper restarts, with a counter that has come to its end", func(ctx context.Context) error {
		if err := z.SetSequence(ctx, math.MaxInt32, z.queues...); err != nil {
			return err
		}
		return eventually(ctx, "the replicas are connected again", func() (bool, error) {
			return cmp.Or(s.Victim.Ready(ctx), s.Survivor.Ready(ctx)) == nil, nil
		})
	})
}
