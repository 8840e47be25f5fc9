// Package guard makes read-modify-write one step for all requests that take the same lock.
package guard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"stock/internal/locks"
	"stock/internal/stock"
	"stock/internal/stock/mysql"
	"stock/internal/stock/redis"
)

// guarded is read-modify-write under a lock. Guarded strategies differ only in their lock, and none is better than its
// lock.
type guarded struct {
	name   string // of the strategy, in its keys: different kinds of locks must not share them
	prefix string // of the keys: see stock.Deps
	locker locks.Locker
	store  stock.ReadWriter
	whole  stock.Lockable // the store, or nil inside a transaction
	fenced bool           // late holders are refused
	items  *knownItems
	wait   time.Duration

	log *slog.Logger
}

// key is the lock's name for an item.
func (g guarded) key(goodsID int64) string {
	return g.prefix + g.name + ":{" + strconv.FormatInt(goodsID, 10) + "}"
}

// as returns the store as seen by the holder of a lock who carries out a request.
func (g guarded) as(lease *locks.Lease, req stock.Request) stock.ReadWriter {
	if g.whole == nil {
		return g.store
	}
	return g.whole.As(g.holder(lease), req)
}

// holder is the holder of a lock as the fence knows it, if there is one.
func (g guarded) holder(lease *locks.Lease) stock.Holder {
	holder := stock.Holder{Token: lease.Token()}
	if g.fenced {
		holder.Issuer = g.name
	}
	return holder
}

var errWaited = errors.New("the longest wait for a lock has passed")

func (g guarded) Deduct(ctx context.Context, req stock.Request) (stock.Receipt, error) {
	section := stock.Arrive()
	if err := g.items.check(ctx, req.GoodsID); err != nil {
		return stock.Receipt{}, err
	}
	return g.whole.Once(ctx, req, func() (stock.Receipt, error) { return g.lockAndDeduct(ctx, req, section) })
}

// CancelSale implements stock.Canceller.
func (g guarded) CancelSale(ctx context.Context, req stock.CancelRequest) (stock.Sale, error) {
	return g.whole.CancelSale(ctx, req)
}

// Sale implements stock.Canceller.
func (g guarded) Sale(ctx context.Context, id stock.SaleID) (stock.Sale, error) {
	return g.whole.Sale(ctx, id)
}

func (g guarded) lockAndDeduct(ctx context.Context, req stock.Request, section stock.Section) (stock.Receipt, error) {
	return g.underLock(ctx, req, func(lease *locks.Lease) (stock.Receipt, error) {
		section.Enter()
		receipt, err := stock.ReadModifyWrite(lease.Context(), g.as(lease, req), req, section)
		receipt.Token = lease.Token()
		return receipt, err
	})
}

// underLock takes the lock of the item, deducts, and releases it.
func (g guarded) underLock(
	ctx context.Context, req stock.Request, deduct func(*locks.Lease) (stock.Receipt, error),
) (receipt stock.Receipt, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// A deadline on ctx would bound the work too: only the wait is limited here.
	limit := g.limit(ctx, cancel)
	lease, err := g.locker.Lock(ctx, g.key(req.GoodsID))
	limit.Stop()
	if err != nil {
		return stock.Receipt{}, classifyLock(ctx, err)
	}
	defer func() { g.unlock(lease, req.GoodsID, err) }()
	return deduct(lease)
}

// answerTime is how long a request with a short limit may wait for the answer of the lock service.
const answerTime = 100 * time.Millisecond

// limit ends a request if one of its waits takes too long. A request that is tried once waits only for the answer of
// the lock service, for which it has as much time as others.
func (g guarded) limit(ctx context.Context, cancel context.CancelCauseFunc) *time.Timer {
	wait := max(stock.LongestWait(ctx, g.wait), min(answerTime, g.wait))
	if stock.TriesOnce(ctx) {
		wait = g.wait
	}
	return time.AfterFunc(wait, func() { cancel(errWaited) })
}

// classifyLock classifies the error of a lock that was not granted.
func classifyLock(ctx context.Context, err error) error {
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		<-ctx.Done() // a connection that takes its deadline from ctx may time out a moment before the timer of ctx fires
	}
	switch {
	case errors.Is(err, stock.ErrBusy):
		return err
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w: %w", stock.ErrBusy, context.Cause(ctx), err)
	case mysql.IsBusy(err), redis.IsPoolFull(err), errors.Is(err, locks.ErrLeaseLost), errors.Is(err, locks.ErrHeld):
		return fmt.Errorf("%w: %w", stock.ErrBusy, err)
	}
	return fmt.Errorf("%w: %w", stock.ErrUnavailable, err)
}

// unlock releases the lock of an item, or of several, after a deduction that ended with err.
func (g guarded) unlock(lease *locks.Lease, items any, err error) {
	if errors.Is(err, stock.ErrUnknown) && !g.fenced && !lease.Deadline().IsZero() {
		// The write may still be on its way to the store. If the lock is kept until its lease ends, it outlasts the
		// write. With a fence there is no need to wait: the next holder reads the write, or one of the two is
		// refused.
		lease.Abandon()
		g.log.Warn("lock kept until its lease ends: the outcome of a write is unknown", "goods_id", items, "error", err)
		return
	}
	if unlock := lease.Unlock(); unlock != nil {
		// The deduction took effect. Only a fence can tell whether another holder had the lock meanwhile.
		g.log.Warn("lock not released", "goods_id", items, "error", unlock)
	}
}
