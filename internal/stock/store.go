package stock

import (
	"context"
	"fmt"
)

// ReadWriter reads and overwrites the stock of items. These are two steps: only a lock or a transaction makes them
// atomic.
type ReadWriter interface {
	// Read fails with ErrUnknownItem, ErrBusy or ErrUnavailable.
	Read(ctx context.Context, goodsID int64) (units int64, err error)
	// Write overwrites the stock of a known item. It fails with ErrUnknown if no reply arrived, and otherwise as Read
	// does, with nothing written.
	Write(ctx context.Context, goodsID, units int64) error
}

// AdminStore administers the stock of items in one store.
type AdminStore interface {
	// Read fails with ErrUnknownItem, ErrBusy or ErrUnavailable.
	Read(ctx context.Context, goodsID int64) (units int64, err error)
	// Set sets the stock of an item and creates the item if it is new. It resets the item's fence: tokens may start
	// anew.
	//
	// Each stock that is set has an epoch, a number that grows: a sale carries the epoch of the stock that it was
	// made from. MySQL makes an epoch greater than the given one. The other stores take the given one. If the store
	// already has a stock of the same or a later epoch, it keeps that stock, and Set returns that epoch. Epoch 0
	// always replaces the stock.
	Set(ctx context.Context, goodsID, units, epoch int64) (int64, error)
	// Restock adds 1 to MaxStock units to a known item in one step and returns the stock right after. It fails with
	// ErrOverstocked beyond MaxStock, and otherwise as Write does.
	Restock(ctx context.Context, goodsID, units int64) (int64, error)
}

// Lockable is a store that a lock can guard: it keeps one number for each item, and can refuse late holders.
type Lockable interface {
	ReadWriter
	Canceller
	// As returns the store as seen by one holder who carries out a request. If the holder has an Issuer, Write fails
	// with ErrFenced if a later holder of the same issuer has written, and with ErrChanged if the stock is not what Read
	// has returned. If the request has a key, Write records it, and fails if the key is taken: see Once.
	//
	// A lock without a fence checks neither: an item that a fenced strategy sells must not also be sold under locks
	// without a fence.
	As(holder Holder, req Request) ReadWriter
	// Once makes sure that a deduction with a key is carried out once: it returns the first answer if the key is taken,
	// and records a refusal. deduct must write by As.
	Once(ctx context.Context, req Request, deduct func() (Receipt, error)) (Receipt, error)
}

// ItemStock is the stock of one item, as it was read or is to be written.
type ItemStock struct {
	GoodsID, Units int64
	Read           int64  // units that were read before a write through a fence
	Holder         Holder // who writes; without an Issuer if there is no fence
}

// Holder is the holder of a lock, as the fence of an item knows it: by the token and by who issued it. Tokens of
// different issuers cannot be compared: those of Redis are microseconds, those of etcd are revisions.
type Holder struct {
	Token  uint64
	Issuer string // name of the strategy; empty for none
}

// String names the token and its issuer.
func (h Holder) String() string {
	if h.Issuer == "" {
		return "nobody"
	}
	return fmt.Sprintf("token %d of %s", h.Token, h.Issuer)
}

// RefusedBy is the ErrFenced of a holder when another one has written.
func (h Holder) RefusedBy(goodsID int64, last Holder) error {
	return fmt.Errorf("%w: the last sale of item %d had %v, and this one has no later one: %v; try again; if every "+
		"request is refused, the lock service has lost its data: set the stock of the item, which resets its fence",
		ErrFenced, goodsID, last, h)
}
