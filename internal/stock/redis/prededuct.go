package redis

import (
	"context"

	"stock/internal/stock"
)

// prededuct takes the units first and looks afterwards: DECRBY, and INCRBY if there were too few. No unit is sold
// twice. But while the units of a refused request are on their way back, buyers who want fewer units find too few, and
// are refused although enough are left. If the process dies meanwhile, these units are lost. In redis-script, the check
// and the deduction are one step.
type prededuct struct{ Store }

// NewPrededuct makes the control `redis-prededuct`.
func NewPrededuct(d stock.Deps) stock.Deducter { return prededuct{New(d)} }

func (p prededuct) Deduct(ctx context.Context, req stock.Request) (stock.Receipt, error) {
	section := stock.Arrive()
	// DECRBY would create an item that does not exist.
	if _, err := p.Read(ctx, req.GoodsID); err != nil {
		return stock.Receipt{}, err
	}
	section.Enter()
	if err := stock.Work(ctx, req.Hold); err != nil {
		return stock.Receipt{}, err
	}
	if ctx.Err() != nil {
		return stock.Receipt{}, stock.Interrupted(context.Cause(ctx))
	}
	remaining, err := p.Client.DecrBy(context.WithoutCancel(ctx), p.Key(req.GoodsID), int64(req.Count)).Result()
	if err := classifyWrite(err); err != nil {
		return stock.Receipt{}, err
	}
	if remaining < 0 {
		// Below zero before this request, too, if others are giving back.
		return stock.Receipt{}, p.giveBack(ctx, req, max(0, remaining+int64(req.Count)))
	}
	section.Leave()
	return section.Receipt(remaining, 1), nil
}

// giveBack returns the units of a request that found too few, and its refusal. If that fails, they may be gone: the
// outcome is unknown.
func (p prededuct) giveBack(ctx context.Context, req stock.Request, found int64) error {
	if err := p.Add(ctx, req.GoodsID, req.Count); err != nil {
		return err
	}
	return &stock.SoldOutError{GoodsID: req.GoodsID, Asked: req.Count, Remaining: found}
}
