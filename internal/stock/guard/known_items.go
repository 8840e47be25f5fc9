package guard

import (
	"context"
	"sync"

	"stock/internal/stock"
)

// knownItems checks that a store has an item before its lock is taken. Some locks leave a record of each item that was
// ever locked in the lock service, so requests for items that do not exist could fill it.
//
// Items are never deleted, so those that were found are remembered. An unknown item is not: it may be created at any
// time, and clients could fill the memory with such items.
type knownItems struct {
	store stock.ReadWriter
	found sync.Map // of the ids of items
}

// check fails with ErrUnknownItem, ErrBusy or ErrUnavailable.
func (k *knownItems) check(ctx context.Context, goodsID int64) error {
	if _, ok := k.found.Load(goodsID); ok {
		return nil
	}
	if _, err := k.store.Read(ctx, goodsID); err != nil {
		return err
	}
	k.found.Store(goodsID, struct{}{})
	return nil
}
