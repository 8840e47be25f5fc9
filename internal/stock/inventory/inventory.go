// Package inventory administers stock in all stores: it reads, sets and restocks items.
package inventory

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"stock/internal/stock"
	"stock/internal/stock/mysql"
	"stock/internal/stock/redis"
)

// Inventory is the stock of all items in the configured stores.
type Inventory struct {
	mysql  mysql.Store
	stores map[stock.Store]stock.AdminStore
}

// New returns the inventory of the stores that are configured.
func New(d stock.Deps) *Inventory {
	i := &Inventory{mysql: mysql.NewAdmin(d), stores: map[stock.Store]stock.AdminStore{}}
	if d.MySQL != nil {
		i.stores[stock.MySQL] = i.mysql
		i.stores[stock.Slots] = mysql.SlotStore{MySQL: i.mysql}
		i.stores[stock.Units] = mysql.UnitStore{MySQL: i.mysql}
	}
	if d.Redis != nil {
		i.stores[stock.Redis] = redis.New(d)
	}
	return i
}

// Stock reads the units of one item in one store, MySQL if on is empty. Its errors are ErrUnknownItem, ErrBusy,
// ErrUnavailable and ErrUnsupportedStore.
func (i *Inventory) Stock(ctx context.Context, on stock.Store, goodsID int64) (int64, error) {
	store, err := i.store(on)
	if err != nil {
		return 0, err
	}
	return store.Read(ctx, goodsID)
}

// SetStock sets the units of one item, new or known, in every configured store, and resets its fences. Without any
// store it fails with ErrUnavailable.
//
// MySQL comes first and Redis last: what is then sold from the new stock in Redis finds the new stock in MySQL. What
// was sold from an older stock is not deducted from the new one.
//
// Redis may already have a later stock. Either another SetStock came last in both stores; or MySQL has lost data, or
// the replicas' clocks differ. Then the stock is set again, with an epoch beyond that of Redis.
func (i *Inventory) SetStock(ctx context.Context, goodsID, units int64) (err error) {
	if len(i.stores) == 0 {
		return fmt.Errorf("set the stock: no store is configured: %w", stock.ErrUnavailable)
	}
	epoch := int64(0)
	for {
		issued := int64(0)
		for _, on := range []stock.Store{stock.MySQL, stock.Slots, stock.Units, stock.Redis} {
			if store, ok := i.stores[on]; ok {
				if epoch, err = store.Set(ctx, goodsID, units, epoch); err != nil {
					return err
				}
				issued = cmp.Or(issued, epoch)
			}
		}
		if epoch == issued {
			return nil
		}
		last, err := i.mysql.Epoch(ctx, goodsID)
		if err != nil || last >= epoch {
			return err
		}
	}
}

// Restock adds units, 1 to MaxStock, to a known item in one store, MySQL if on is empty, and returns the stock right
// after. Its errors are ErrUnknownItem, ErrOverstocked, ErrBusy, ErrUnavailable, ErrUnsupportedStore and ErrUnknown.
//
// It is one atomic step that takes no lock of a strategy. It is safe beside strategies whose write is atomic too, or is
// refused if the stock has changed since they read it. That is all of them but read-modify-write under a lock without a
// fence, which overwrites the restock.
func (i *Inventory) Restock(ctx context.Context, on stock.Store, goodsID, units int64) (int64, error) {
	store, err := i.store(on)
	if err != nil {
		return 0, err
	}
	return store.Restock(ctx, goodsID, units)
}

func (i *Inventory) store(on stock.Store) (stock.AdminStore, error) {
	if on == "" {
		on = stock.Stores[0]
	}
	if store, ok := i.stores[on]; ok {
		return store, nil
	}
	if slices.Contains(stock.Stores, on) {
		return nil, fmt.Errorf("store %s: not configured: %w", on, stock.ErrUnavailable)
	}
	return nil, fmt.Errorf("%w %q: the stores are %v", stock.ErrUnsupportedStore, on, stock.Stores)
}
