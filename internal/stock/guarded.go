package stock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"stock/internal/locks"
)

// guarded is one read-modify-write that a lock makes one step. The lock is all that tells these strategies apart, and
// none of them is better than its lock.
type guarded struct {
	name   string // of the strategy, in its keys: one kind of lock cannot read another's
	locker locks.Locker
	store  store
	fence  func(token uint64, count int) store // the store of the holder of a token; nil where a late holder is not refused
	wait   time.Duration
	log    *slog.Logger
}

// guard puts the lock of a strategy around read-modify-write.
func (s Strategy) guard(locker locks.Locker, d Deps, on Store, connections *lockConnections) Deducter {
	whole := d.lockable(on)
	g := guarded{name: s.Name, locker: locker, store: whole, wait: d.LockWait, log: d.Log}
	if s.Fenced {
		g.fence = func(token uint64, count int) store { return whole.fence(s.Name, token, count) }
	}
	// An order by a strategy that is wrong for one goods would show nothing new.
	if s.Claim.TwoReplicas != Correct || !whole.atomic() {
		return g
	}
	orders := guardedOrders{guarded: g, whole: whole}
	if slices.Contains(s.Needs, NeedMySQL) {
		orders.connections = connections
	}
	return orders
}

// key is the lock's name for a goods.
func (g guarded) key(goodsID int64) string {
	return g.name + ":{" + strconv.FormatInt(goodsID, 10) + "}"
}

var errWaited = errors.New("the longest wait for a lock has passed")

func (g guarded) Deduct(ctx context.Context, req Request) (Receipt, error) {
	section := arrive()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// A deadline on ctx would bound the work too: only the wait is limited here.
	limit := time.AfterFunc(g.wait, func() { cancel(errWaited) })
	lease, err := g.locker.Lock(ctx, g.key(req.GoodsID))
	limit.Stop()
	if err != nil {
		return Receipt{}, ungranted(ctx, err)
	}
	section.enter()
	return g.hold(lease, req, section)
}

// ungranted classifies the error of a lock that was not granted.
func ungranted(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w: %w", ErrBusy, context.Cause(ctx), err)
	case mysqlNotNow(err), redisPoolFull(err), errors.Is(err, locks.ErrLeaseLost):
		return fmt.Errorf("%w: %w", ErrBusy, err)
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// hold works under the lock and gives it back.
func (g guarded) hold(lease *locks.Lease, req Request, section section) (receipt Receipt, err error) {
	defer func() { g.giveBack(lease, req.GoodsID, err) }()
	in := g.store
	if g.fence != nil {
		in = g.fence(lease.Token(), req.Count)
	}
	receipt, err = readModifyWrite(lease.Context(), in, req, section)
	receipt.Token = lease.Token()
	return receipt, err
}

// giveBack gives back the lock of a goods, or of several, whose deduction ended in err.
func (g guarded) giveBack(lease *locks.Lease, goods any, err error) {
	if errors.Is(err, ErrUnknown) && g.fence == nil && !lease.Deadline().IsZero() {
		// The write may still be on its way to the store. Kept until it ends by itself, the lock outlasts it. A fence needs
		// no such wait: the next holder's claim sees the write, or refuses it.
		lease.Abandon()
		g.log.Warn("lock kept until its lease ends: the outcome of a write is unknown", "goods_id", goods, "error", err)
		return
	}
	if unlock := lease.Unlock(); unlock != nil {
		// The deduction stands as it is: the store answered. Whether another held the lock meanwhile, only a fence can say.
		g.log.Warn("lock not given back", "goods_id", goods, "error", unlock)
	}
}

// readModifyWrite is the critical section itself, which excludes nobody by its own means.
func readModifyWrite(ctx context.Context, in store, req Request, section section) (Receipt, error) {
	if err := req.pause(ctx, AfterLock); err != nil {
		return Receipt{}, interrupted(err)
	}
	units, err := in.read(ctx, req.GoodsID)
	if err != nil {
		return Receipt{}, err
	}
	if err := req.pause(ctx, AfterRead); err != nil {
		return Receipt{}, interrupted(err)
	}
	if units < int64(req.Count) {
		return Receipt{}, &SoldOutError{req.GoodsID, req.Count, units}
	}
	if err := req.work(ctx); err != nil {
		return Receipt{}, interrupted(err)
	}
	if err := req.pause(ctx, BeforeWrite); err != nil {
		return Receipt{}, interrupted(err)
	}
	units -= int64(req.Count)
	if err := in.write(ctx, req.GoodsID, units); err != nil {
		return Receipt{}, err
	}
	_ = req.pause(ctx, BeforeUnlock) // the write stands, whatever ends the pause
	section.leave()
	return section.receipt(units, 1), nil
}

// interrupted is the refusal of a deduction that ended before it wrote anything.
func interrupted(cause error) error {
	return fmt.Errorf("%w: ended before anything was written: %w", ErrBusy, cause)
}
