package fault

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/internal/tcpproxy"
	"stock/loadtest/internal/history"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/scenario"
)

var leaseScenarios = []Scenario{deletesAnothersLock, crashBeforeExpire, lockConnectionKilled}

// deletesAnothersLock is the story of a release that arrives when the lock is another's.
var deletesAnothersLock = Scenario{
	Name:    "deletes-anothers-lock",
	Title:   "A holder's release is delayed on the wire until its lease has ended and the next holder is inside.",
	Applies: keyInRedis,
	Claim: func(s scenario.Strategy) Claim {
		switch s.Name {
		case "lock-redis-setnx", "lock-redis-expiry":
			return claim("deletes the lock of whoever holds it", report.Unsafe)
		case "lock-redis-owner":
			return claim("checks the owner, and deletes in a second command", report.Unsafe)
		}
		return claim("deletes its own lock alone", report.Safe)
	},
	Deploy: patient(),
	Play:   playLateRelease,
}

// keyInRedis applies to locks that are one key of Redis.
func keyInRedis(s scenario.Strategy) string {
	if !strings.HasPrefix(s.Name, "lock-redis-") || slices.Contains(s.Needs, "redlock") {
		return "the story is about a lock that is one key of one Redis"
	}
	return ""
}

// lockKey is the key of the item's lock.
func (s *Stage) lockKey() string {
	return fmt.Sprintf("%s%s:{%d}", s.Addresses.KeyPrefix, s.Strategy.Name, s.Item)
}

func playLateRelease(ctx context.Context, s *Stage) error {
	side := s.openRedis()
	defer side.Close()
	// The scripts must be known to Redis, or it would ask for the text of the one that comes late.
	if _, err := s.send(ctx, order{client: "Z", at: s.Victim}); err != nil {
		return err
	}
	holder, _, err := s.parkAtFirst(ctx, order{client: "A", at: s.Victim}, "before-unlock")
	if err != nil {
		return err
	}
	late := s.Victim.Redis.Catch(s.releasesLock)
	defer late.Release()
	released := make(chan error, 1)
	s.inBackground(func() { released <- s.release(ctx, holder) })
	if err := arrive(ctx, late); err != nil {
		return fmt.Errorf("the release of A is not on the wire: %w", err)
	}
	s.Stepf("A has written; the proxy holds its release of %d bytes", late.Bytes())
	next, ends, err := s.enterAfterLease(ctx, side)
	if err != nil {
		return err
	}
	late.Release()
	if err := answer(ctx, late); err != nil {
		return err
	}
	if err := s.enterIfFree(ctx, side, ends); err != nil {
		return err
	}
	if err := s.release(ctx, next); err != nil {
		return err
	}
	if err := <-released; err != nil {
		return err
	}
	_, err = s.send(ctx, order{client: "D", at: s.Survivor})
	return err
}

// enterAfterLease has B wait until A's lease has ended, and stops it inside. It returns when B's own lease ends, unless
// it is renewed, or the zero time if it never does.
func (s *Stage) enterAfterLease(ctx context.Context, side *redis.Client) (next *pending, ends time.Time, err error) {
	if s.Strategy.Claim.HolderCrash == "blocks-forever" {
		if err := side.Del(ctx, s.lockKey()).Err(); err != nil {
			return nil, ends, err
		}
		s.Stepf("the lock does not end by itself: an operator takes A for dead, and deletes it")
	}
	next, err = s.parkNext(ctx, order{client: "B", at: s.Survivor, count: 2}, "after-read")
	if err != nil {
		return nil, ends, err
	}
	asked := time.Now()
	rest, err := side.PTTL(ctx, s.lockKey()).Result()
	if err != nil {
		return nil, ends, err
	}
	if rest > 0 {
		ends = asked.Add(rest)
	}
	s.Stepf("B has been granted the lock and has read the stock; the PTTL of the lock is %s", pttl(rest))
	return next, ends, nil
}

// enterIfFree has C buy if A's release has deleted the lock of B, which is inside. ends is when the lock would end by
// itself, or zero.
func (s *Stage) enterIfFree(ctx context.Context, side *redis.Client, ends time.Time) error {
	held, err := side.Exists(ctx, s.lockKey()).Result()
	switch {
	case err != nil:
		return err
	case held > 0:
		s.Provef("A's release arrived while B was inside; B's lock is still there")
		return nil
	case !ends.IsZero() && time.Now().After(ends):
		return errors.New("the lease of client B may have ended by itself")
	}
	s.Provef("A's release arrived while B was inside, and deleted B's lock")
	if s.Strategy.Fenced() { // the fence keeps the stock right
		s.Failf("A's release has deleted the lock of B, which was inside")
	}
	_, err = s.send(ctx, order{client: "C", at: s.Survivor, count: 3})
	return err
}

// parkNext sends requests until one is parked at a pause point: the first ones may not be granted the lock.
func (s *Stage) parkNext(ctx context.Context, o order, point string) (*pending, error) {
	client := o.client
	for i := 1; ; i++ {
		p, parked, err := s.parkAt(ctx, o, point)
		switch {
		case parked || err != nil:
			return p, err
		case p.op.Outcome == history.Sold:
			return p, fmt.Errorf("the strategy does not pass %s", point)
		}
		o.client = fmt.Sprintf("%s%d", client, i)
	}
}

// arrive waits until a message is held.
func arrive(ctx context.Context, c *tcpproxy.Caught) error {
	select {
	case <-c.Arrived():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// answer waits until a message that was held is answered.
func answer(ctx context.Context, c *tcpproxy.Caught) error {
	select {
	case <-c.Answered():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// pttl formats a PTTL as Redis does: milliseconds, or -1 if the key does not expire, or -2 if it does not exist.
func pttl(rest time.Duration) string {
	if rest < 0 {
		return strconv.Itoa(int(rest))
	}
	return strconv.FormatInt(rest.Milliseconds(), 10)
}

// releasesLock matches the command that releases the item's lock.
func (s *Stage) releasesLock(m tcpproxy.Message) bool {
	command := bytes.ToLower(m.Data)
	return bytes.Contains(m.Data, argument(s.lockKey())) && !s.renewsLock(m) &&
		slices.ContainsFunc([]string{"del", "srem", "evalsha", "eval"}, func(name string) bool {
			return bytes.Contains(command, argument(name))
		})
}

// renewsLock matches the command that starts the lease of the item's lock anew: a script with one key, and with the
// lease as an argument.
func (s *Stage) renewsLock(m tcpproxy.Message) bool {
	key := append(argument("1"), argument(s.lockKey())[2:]...)
	return bytes.Contains(m.Data, key) &&
		bytes.Contains(m.Data, argument(strconv.FormatInt(lease.Milliseconds(), 10)))
}

// argument is an argument of a command of Redis, as it is on the wire, with the end of the line before it.
func argument(text string) []byte { return fmt.Appendf(nil, "\r\n$%d\r\n%s\r\n", len(text), text) }

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
	return s.buyWithin(ctx, "B", cut, lease+time.Second, func(client string) (history.Op, error) {
		return s.perform(client, 2, func() (int64, error) { return shop.sellWithin(ctx, client, 2, lease/4) }), nil
	})
}

// lockConnectionKilled is the story of GET_LOCK's connection, which is not the one on which the holder works.
var lockConnectionKilled = Scenario{
	Name:    "lock-connection-killed",
	Title:   "The connection that holds GET_LOCK is killed (KILL CONNECTION) while its holder is between read and write.",
	Applies: only("lock-mysql-getlock"),
	Claim: func(scenario.Strategy) Claim {
		return claim("works on another connection, and notices too late", report.Unsafe)
	},
	// The holder asks once in a third of a lease whether it still has the lock.
	Deploy: patient("--lease=30s"),
	Play: func(ctx context.Context, s *Stage) error {
		side, err := s.openMySQL(ctx, nil)
		if err != nil {
			return err
		}
		defer side.Close()
		a := order{client: "A", at: s.Victim, timeout: patientTimeout}
		holder, _, err := s.parkAtFirst(ctx, a, "before-write")
		if err != nil {
			return err
		}
		if err := s.killHolder(ctx, side, s.lockKey()); err != nil {
			return err
		}
		killed := time.Now()
		if err := s.buy(ctx, order{client: "B", at: s.Survivor, count: 2}, killed); err != nil {
			return err
		}
		if err := s.resume(ctx, holder); err != nil {
			return err
		}
		_, err = s.send(ctx, order{client: "C", at: s.Survivor})
		return err
	},
	Practices: []Practice{getLockSameConnection},
}

// killHolder kills the connection that holds a lock of GET_LOCK, and waits until the lock is free.
func (s *Stage) killHolder(ctx context.Context, side *sql.DB, name string) error {
	var id int64
	if err := side.QueryRowContext(ctx, "SELECT IS_USED_LOCK(?)", name).Scan(&id); err != nil {
		return fmt.Errorf("find the connection that holds %s: %w", name, err)
	}
	if _, err := side.ExecContext(ctx, fmt.Sprintf("KILL CONNECTION %d", id)); err != nil {
		return err
	}
	err := eventually(ctx, "the lock is free", func() (free bool, err error) {
		err = side.QueryRowContext(ctx, "SELECT IS_FREE_LOCK(?)", name).Scan(&free)
		return free, err
	})
	if err == nil {
		s.Provef("connection %d was killed, and IS_FREE_LOCK says that its lock is free while A is inside", id)
	}
	return err
}

// getLockSameConnection works on the connection that holds the lock: both end together.
var getLockSameConnection = Practice{
	Name:  "get-lock-same-connection",
	Claim: claim("loses its connection to the stock with the lock", report.Safe),
	Play: func(ctx context.Context, s *Stage) error {
		db, err := s.openMySQL(ctx, nil)
		if err != nil {
			return err
		}
		defer db.Close()
		holder, err := s.lockAndRead(ctx, db)
		if err != nil {
			return err
		}
		defer holder.close()
		a := s.ask("A", 1)
		if err := s.killHolder(ctx, db, holder.name); err != nil {
			return err
		}
		b := s.perform("B", 2, func() (int64, error) {
			next, err := s.lockAndRead(ctx, db)
			if err != nil {
				return 0, err
			}
			defer next.close()
			return next.write(ctx, 2)
		})
		if b.Outcome != history.Sold {
			return fmt.Errorf("client B was not sold anything: %s", b.Error)
		}
		a.answer(holder.write(ctx, 1)) // the server has ended the connection: nothing was written
		return nil
	},
}

// locked is a connection that holds a lock of GET_LOCK, and has read the stock.
type locked struct {
	conn  *sql.Conn
	name  string
	item  int64
	units int64
}

func (s *Stage) lockAndRead(ctx context.Context, db *sql.DB) (l *locked, err error) {
	l = &locked{name: s.lockKey(), item: s.Item}
	if l.conn, err = db.Conn(ctx); err != nil {
		return nil, err
	}
	var granted bool
	err = l.conn.QueryRowContext(ctx, "SELECT GET_LOCK(?, 1)", l.name).Scan(&granted)
	if err == nil && !granted {
		err = errHeld
	}
	if err == nil {
		err = l.conn.QueryRowContext(ctx, readSQL, l.item).Scan(&l.units)
	}
	if err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// write deducts, and returns the units that remain.
func (l *locked) write(ctx context.Context, count int64) (remaining int64, err error) {
	_, err = l.conn.ExecContext(ctx, writeSQL, l.units-count, l.item)
	return l.units - count, err
}

// close closes the connection, and with it ends the lock.
func (l *locked) close() {
	_ = l.conn.Raw(func(any) error { return driver.ErrBadConn })
	l.conn.Close()
}
