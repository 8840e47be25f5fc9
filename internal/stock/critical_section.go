package stock

import (
	"context"
	"errors"
	"time"

	"stock/internal/monotonic"
)

// Decide is the middle of read-modify-write: given the stock that was read, it refuses the request or returns what
// will be left, after it has worked for as long as the request asks. Strategies that decide inside one statement or
// script do not call Decide: they call Work themselves.
func (r Request) Decide(ctx context.Context, units int64) (remaining int64, err error) {
	if units < int64(r.Count) {
		return 0, &SoldOutError{GoodsID: r.GoodsID, Asked: r.Count, Remaining: units}
	}
	return units - int64(r.Count), Work(ctx, r.Hold)
}

// DecideAndWrite decides on an order whose items are locked and read, and writes all of them at once: a crash must
// not leave half an order behind.
func (r OrderRequest) DecideAndWrite(
	ctx context.Context, stocks []ItemStock, writeAll func(context.Context, []ItemStock) error, section Section,
) (OrderReceipt, error) {
	receipts, err := r.decide(ctx, stocks)
	if err != nil {
		return OrderReceipt{}, err
	}
	if err := writeAll(ctx, stocks); err != nil {
		return OrderReceipt{}, err
	}
	section.Leave()
	return section.OrderReceipt(receipts), nil
}

// decide is Request.Decide for all lines of an order. It takes the stock of each line as it was read, and replaces it
// by what will be left.
func (r OrderRequest) decide(ctx context.Context, stocks []ItemStock) ([]LineReceipt, error) {
	for i, line := range r.lines {
		present := &stocks[i]
		if present.Units < int64(line.Count) {
			soldOut := &SoldOutError{GoodsID: line.GoodsID, Asked: line.Count, Remaining: present.Units}
			return nil, line.Refused(soldOut)
		}
		present.Units -= int64(line.Count)
	}
	return r.Receipts(stocks), Work(ctx, r.Hold)
}

// Work spends a request's Hold inside the critical section. If ctx ends first, its error is an ErrBusy.
func Work(ctx context.Context, hold time.Duration) error {
	if hold > 0 && monotonic.Sleep(ctx, hold) != nil {
		return Interrupted(context.Cause(ctx))
	}
	return nil
}

// ReadModifyWrite deducts in two steps, read and write. It excludes nobody by itself: the caller holds a lock, or is
// in a transaction that does.
func ReadModifyWrite(ctx context.Context, in ReadWriter, req Request, section Section) (Receipt, error) {
	for attempt := 1; ; attempt++ {
		remaining, err := readDecideWrite(ctx, in, req)
		if TryAgain(err, attempt) {
			continue
		}
		if err != nil {
			return Receipt{}, err
		}
		section.Leave()
		return section.Receipt(remaining, attempt), nil
	}
}

func readDecideWrite(ctx context.Context, in ReadWriter, req Request) (remaining int64, err error) {
	units, err := in.Read(ctx, req.GoodsID)
	if err != nil {
		return 0, err
	}
	if remaining, err = req.Decide(ctx, units); err != nil {
		return 0, err
	}
	return remaining, in.Write(ctx, req.GoodsID, remaining)
}

// maxTries is how often the holder of a lock may read and write. Few can write besides the holder: those whose turn has
// ended, once each, and whoever restocks the item.
const maxTries = 10

// TryAgain reports whether the holder of a lock should read the stock again, because it changed before the write.
func TryAgain(err error, attempt int) bool { return errors.Is(err, ErrChanged) && attempt < maxTries }
