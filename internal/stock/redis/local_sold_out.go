package redis

import (
	"context"
	"errors"
	"sync"

	"stock/internal/stock"
)

// localSoldOut is prededuct with a flag in the process for each item that was sold out once. It spares Redis the
// requests of a crowd that comes too late. But nothing resets the flag: not units that are restocked or given back, and
// not the units that were left for buyers who want fewer.
type localSoldOut struct {
	prededuct
	soldOut sync.Map // of the ids of items
}

// NewLocalSoldOut makes the control `local-sold-out`.
func NewLocalSoldOut(d stock.Deps) stock.Deducter {
	return &localSoldOut{prededuct: prededuct{New(d)}}
}

func (l *localSoldOut) Deduct(ctx context.Context, req stock.Request) (stock.Receipt, error) {
	if _, over := l.soldOut.Load(req.GoodsID); over {
		return stock.Receipt{}, &stock.SoldOutError{GoodsID: req.GoodsID, Asked: req.Count}
	}
	receipt, err := l.prededuct.Deduct(ctx, req)
	if errors.Is(err, stock.ErrSoldOut) {
		l.soldOut.Store(req.GoodsID, struct{}{})
	}
	return receipt, err
}
