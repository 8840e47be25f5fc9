package stock

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Canceller undoes sales by their keys. A Deducter that keeps keys is one.
//
// A cancellation needs no key of its own: it says how many units are to be cancelled in all, so that the same one again
// changes nothing. All errors are refusals or ErrUnknown, as those of Deduct; after a refusal the sale is as it was. An
// ErrUnknown is settled by the same call again.
type Canceller interface {
	// CancelSale cancels what was sold for a key, or a part of it, and puts the units back into the stock that they were
	// taken from, unless that was set since. If nothing is known of the key, it makes sure that nothing is sold for it:
	// a sale that is in flight either commits first, and is then cancelled, or fails with ErrCancelled. It fails with
	// ErrUnknownSale, ErrInProgress, ErrMoreThanSold, ErrItemNotNamed, ErrOverstocked, or ErrKeyReused if the key belongs
	// to another store.
	//
	// Beside a lock without a fence, a holder that has read the stock overwrites units that are put back, as it does with
	// those of a restock: see Claim.Restocked.
	CancelSale(ctx context.Context, req CancelRequest) (Sale, error)
	// Sale returns what became of the request with a key. It fails with ErrUnknownSale, ErrInProgress,
	// ErrItemNotNamed, or ErrKeyReused if the key belongs to another store.
	Sale(ctx context.Context, id SaleID) (Sale, error)
}

// SaleID names a sale.
type SaleID struct {
	Key     string
	GoodsID int64 // an item of the sale, which a Redis Cluster needs to find the key; otherwise it may be 0
}

// CancelRequest asks to cancel a sale, or a part of it.
type CancelRequest struct {
	SaleID
	// Lines has the units that are to be cancelled in all, of one item each; other items of the sale stay as they are.
	// Without Lines, everything is cancelled. If there is one line, its GoodsID may be 0: it is that of the sale, which
	// must be of one item.
	Lines []Line
}

// Sale is what became of a request with a key.
type Sale struct {
	Key      string
	State    SaleState
	Lines    []SaleLine // one for each item, in ascending order; none if nothing was sold
	Replayed bool       // nothing was cancelled now
}

// SaleLine is what was sold of one item, and what became of it.
type SaleLine struct {
	Line
	Cancelled int // units
	GivenBack int // of these, those that were put back: the others are of a stock that was replaced
}

// SaleState tells what became of a request with a key.
type SaleState string

// The states.
const (
	SaleDone      SaleState = "sold"
	SaleRefused   SaleState = "refused"    // sold out
	SaleCancelled SaleState = "cancelled"  // all that was sold was cancelled
	SaleNeverSold SaleState = "never-sold" // nothing was sold when it was cancelled, and nothing will be
)

// Refusals of cancellations, and of sales that were cancelled.
var (
	// ErrCancelled reports that the request was cancelled by its key: it sells nothing.
	ErrCancelled = errors.New("the sale was cancelled")
	// ErrUnknownSale reports that nothing is known of a key.
	ErrUnknownSale = errors.New("unknown sale")
	// ErrMoreThanSold reports that a cancellation asks for more units than were sold.
	ErrMoreThanSold = errors.New("more units than were sold")
	// ErrItemNotNamed reports that a key is kept beside its item, which was not named.
	ErrItemNotNamed = errors.New("the item of the sale is not named")
)

// Check fails with ErrUnknownSale if the sale has not the item that its id names.
func (s *Sale) Check(id SaleID) error {
	has := slices.ContainsFunc(s.Lines, func(l SaleLine) bool { return l.GoodsID == id.GoodsID })
	if id.GoodsID == 0 || has || len(s.Lines) == 0 {
		return nil
	}
	return fmt.Errorf("%w: the sale with the key %q has no item %d", ErrUnknownSale, id.Key, id.GoodsID)
}

// Cancel changes the sale as a request asks, and reports whether that makes a difference. It does not count what is
// given back. Its errors are ErrMoreThanSold, and those of Check.
func (s *Sale) Cancel(req CancelRequest) (changed bool, err error) {
	if err := s.Check(req.SaleID); err != nil {
		return false, err
	}
	if s.CannotSell() {
		return false, nil
	}
	wanted := req.Lines
	if wanted == nil {
		for _, sold := range s.Lines {
			wanted = append(wanted, sold.Line)
		}
		changed = s.State == SaleRefused
	}
	for _, line := range wanted {
		i, err := s.find(line)
		if err != nil {
			return false, err
		}
		if sold := &s.Lines[i]; line.Count > sold.Cancelled {
			sold.Cancelled, changed = line.Count, true
		}
	}
	s.State = StateOf(s.Lines)
	return changed, nil
}

// StateOf is the state of a sale that was not refused.
func StateOf(lines []SaleLine) SaleState {
	switch {
	case len(lines) == 0:
		return SaleNeverSold
	case slices.ContainsFunc(lines, func(l SaleLine) bool { return l.Cancelled < l.Count }):
		return SaleDone
	}
	return SaleCancelled
}

// CannotSell reports whether the request was cancelled as a whole, so that it fails with ErrCancelled.
func (s *Sale) CannotSell() bool { return s.State == SaleCancelled || s.State == SaleNeverSold }

// find returns the index of the line from which a line is to be cancelled.
func (s *Sale) find(line Line) (int, error) {
	i := slices.IndexFunc(s.Lines, func(sold SaleLine) bool {
		return sold.GoodsID == line.GoodsID || line.GoodsID == 0 && len(s.Lines) == 1
	})
	switch {
	case i < 0 && line.GoodsID == 0 && len(s.Lines) > 1:
		return 0, fmt.Errorf("%w of one item: the sale has %d, and the cancellation names none",
			ErrMoreThanSold, len(s.Lines))
	case len(s.Lines) == 0:
		return 0, fmt.Errorf("%w: nothing was sold for this key", ErrMoreThanSold)
	case i < 0:
		return 0, fmt.Errorf("%w: none of item %d were sold, and %d are to be cancelled", ErrMoreThanSold,
			line.GoodsID, line.Count)
	case line.Count > s.Lines[i].Count:
		return 0, fmt.Errorf("%w: %d of item %d were sold, and %d are to be cancelled", ErrMoreThanSold,
			s.Lines[i].Count, s.Lines[i].GoodsID, line.Count)
	}
	return i, nil
}
