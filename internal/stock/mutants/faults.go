package mutants

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"stock/internal/locks"
	"stock/internal/stock"
)

// faultBugs show only when something fails, or when somebody intervenes: a load does not give them away.
var faultBugs = []Mutant{
	mutant("redis-stream-applies-twice", "redis-stream", "An entry that MySQL has already is deducted again.",
		rewrite(1, "INSERT INTO stream_sale", "INSERT IGNORE INTO stream_sale"), explored("replica-dies")),
	mutant("redis-stream-any-epoch", "redis-stream", "Sales of an older stock are deducted from the present one.",
		deductStale, explored("stock-set")),
	mutant("reserve-any-epoch", "reserve", "Units of an older stock are given back to the present one.",
		rewrite(1, "SELECT id, goods_id, count, epoch",
			"SELECT id, goods_id, count, (SELECT epoch FROM good_stock s WHERE s.goods_id = reservation.goods_id) AS epoch"),
		explored("stock-set")),
	mutant("redis-then-mysql-gives-back-unknown", "redis-then-mysql",
		"Units that MySQL may have deducted are given back to Redis.",
		giveBackUnknown, inStory("second-store/unknown")),
	mutant("redis-then-mysql-keeps-refused", "redis-then-mysql",
		"Units that MySQL has refused to deduct are not given back to Redis.",
		onCommand("incrby", "", func(_ context.Context, cmd redis.Cmder, _ redis.ProcessHook) error {
			cmd.(*redis.IntCmd).SetVal(0)
			return nil
		}), inStory("second-store/refuses")),
	mutant("lock-redis-wait-counts-unconfirmed", "lock-redis-wait",
		"A lock that no Redis replica has confirmed within the limit counts as confirmed.",
		both(markLocks, confirmAfterLimit), inStory("wait-for-replica/cut")),
	mutant("lock-redis-rlock-passes-unowned", "lock-redis-rlock",
		"A process passes the lock to its next caller without checking that it has it.",
		rewriteLua(1, "if redis.call('GET', KEYS[1]) == ARGV[1] then\n  redis.call('SET', KEYS[1], ARGV[2]",
			"if true then\n  redis.call('SET', KEYS[1], ARGV[2]"), inStory("pass-after-loss")),
	mutant("batch-ignores-a-failure", "batch", "A batch of several whose UPDATE fails is confirmed.",
		onLostBatch(faked{rows: 1}, nil), inStory("batch-unknown/before")),
	mutant("batch-failure-as-busy", "batch", "A batch of several whose UPDATE gets no answer is told busy.",
		onLostBatch(nil, &mysql.MySQLError{Number: lockWaitTimeout}), inStory("batch-unknown/after")),
	mutant("escrow-ignores-a-failure", "escrow",
		"A batch for which units were shared out anew, and whose COMMIT fails, is confirmed.",
		ignoreFailedCommit(spreads), inStory("batch-unknown/before")),
	mutant("redis-script-failure-as-busy", "redis-script",
		"A call for several requests that gets no answer is told busy.",
		onFailedScript, inStory("batch-unknown/after")),
	mutant("reserve-lost-confirmation-as-busy", "reserve", "A buyer whose confirmation gets no answer is told busy.",
		tellBusyIfLost, explored("lost-reply")),
	mutant("reserve-confirm-lost-as-busy", "reserve", "A confirmation that gets no answer is called busy.",
		func(p *plan) {
			p.confirm = func(ctx context.Context, id stock.ReservationID, next endFunc) (stock.Reservation, error) {
				held, err := next(ctx, id)
				if errors.Is(err, stock.ErrUnknown) {
					p.strikes.Add(1)
					err = stock.ErrBusy
				}
				return held, err
			}
		}, inStory("reservation-unknown/after")),
}

const lockWaitTimeout = 1205

// onLostBatch takes the place of the error of an UPDATE of several units, if the server has not answered.
func onLostBatch(result driver.Result, failure error) change {
	return func(p *plan) {
		p.execute = func(s *statement) (driver.Result, error) {
			sent, err := s.result()
			var answer *mysql.MySQLError
			if err == nil || errors.As(err, &answer) || !s.ofSeveral() {
				return sent, err
			}
			p.strikes.Add(1)
			return result, failure
		}
	}
}

// ignoreFailedCommit ignores the error of the COMMIT after a statement that contains the text. Without a load, there is
// no other COMMIT between the two.
func ignoreFailedCommit(text string) change {
	return func(p *plan) {
		var sent atomic.Bool
		p.edit = func(s *statement) {
			if s.contains(text) {
				sent.Store(true)
			}
		}
		p.commit = func(tx driver.Tx) error {
			err := tx.Commit()
			if sent.Swap(false) && err != nil {
				p.strikes.Add(1)
				err = nil
			}
			return err
		}
	}
}

// serverBusyError is an answer of Redis, after which nothing was done.
type serverBusyError struct{}

func (serverBusyError) Error() string { return "BUSY Redis is busy running a script" }
func (serverBusyError) RedisError()   {}

// onFailedScript tells that Redis has refused a script for several requests that got no answer.
func onFailedScript(p *plan) {
	const firstCount = 4 // EVALSHA, the script, the number of keys, the key; with idempotency keys, more always follow
	p.command = func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		err := next(ctx, cmd)
		var answer redis.Error
		if err == nil || errors.As(err, &answer) || len(cmd.Args()) <= firstCount+1 {
			return err
		}
		p.strikes.Add(1)
		cmd.SetErr(serverBusyError{})
		return serverBusyError{}
	}
}

// deductStale deducts sales that the service records as those of an older stock. The columns are those of stream_sale.
func deductStale(p *plan) {
	const columns, item, units, isDeducted = 6, 0, 3, 5
	instead(1, "INSERT INTO stream_sale", func(s *statement) (driver.Result, error) {
		result, err := s.result()
		for row := 0; row < len(s.args) && err == nil; row += columns {
			if s.args[row+isDeducted].Value != false {
				continue
			}
			_, err = s.also("UPDATE good_stock SET stock = stock - ? WHERE goods_id = ?", []driver.NamedValue{
				{Ordinal: 1, Value: s.args[row+units].Value}, {Ordinal: 2, Value: s.args[row+item].Value},
			})
		}
		return result, err
	})(p)
}

// giveBackUnknown adds units to Redis whose outcome in MySQL is unknown.
func giveBackUnknown(p *plan) {
	var deps stock.Deps
	p.deps = func(d *stock.Deps) { deps = *d }
	onAnswer(1, failedWith(stock.ErrUnknown), func(a *answer) {
		key := fmt.Sprintf("%sstock:{%d}", deps.KeyPrefix, a.req.GoodsID)
		a.err = errors.Join(a.err, deps.Redis.IncrBy(context.Background(), key, int64(a.req.Count)).Err())
	})(p)
}

// unconfirmed is the time at which a request for a lock has sent its first WAIT.
type unconfirmed struct{}

func markLocks(p *plan) {
	p.lock = func(ctx context.Context, key string, next lockFunc) (*locks.Lease, error) {
		return next(context.WithValue(ctx, unconfirmed{}, new(time.Time)), key)
	}
}

// confirmAfterLimit answers the last WAIT of a request that it has one copy.
func confirmAfterLimit(p *plan) {
	const limit = time.Second - 10*time.Millisecond // the last WAIT ends a little earlier
	p.command = func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		first, isMarked := ctx.Value(unconfirmed{}).(*time.Time)
		if cmd.Name() != "wait" || !isMarked {
			return next(ctx, cmd)
		}
		if first.IsZero() {
			*first = time.Now()
		}
		err := next(ctx, cmd)
		if copies := cmd.(*redis.IntCmd); err == nil && copies.Val() == 0 && time.Since(*first) >= limit {
			p.strikes.Add(1)
			copies.SetVal(1)
		}
		return err
	}
}

// withoutToken grants the lock without a token.
func withoutToken(ctx context.Context, key string, next lockFunc) (*locks.Lease, error) {
	lease, err := next(ctx, key)
	if err != nil {
		return nil, err
	}
	granted, err := grant(lease.Context(), key)
	if err == nil {
		context.AfterFunc(granted.Context(), func() { _ = lease.Unlock() })
	}
	return granted, err
}

// tellBusyIfLost tells a buyer busy whose confirmation got no answer.
func tellBusyIfLost(p *plan) {
	type lost struct{}
	p.deduct = func(ctx context.Context, req stock.Request, next deductFunc) (stock.Receipt, error) {
		failed := new(atomic.Bool)
		receipt, err := next(context.WithValue(ctx, lost{}, failed), req)
		if failed.Load() {
			return stock.Receipt{}, stock.ErrBusy
		}
		return receipt, err
	}
	p.execute = func(s *statement) (driver.Result, error) {
		result, err := s.result()
		if failed, ok := s.ctx.Value(lost{}).(*atomic.Bool); ok && err != nil && s.contains(confirms) {
			p.strikes.Add(1)
			failed.Store(true)
		}
		return result, err
	}
}
