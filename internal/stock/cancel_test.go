package stock

import (
	"errors"
	"testing"
)

func TestOnlyASaleUnderALockNeedsItToBeCancelled(t *testing.T) {
	t.Parallel()
	refused := Sale{Key: "k", State: SaleRefused, Guard: "lock-redis-lua"}
	if changed, err := refused.Cancel(CancelRequest{SaleID: SaleID{Key: "k"}}, ""); !changed || err != nil {
		t.Errorf("a request that was refused: %v, %v", changed, err)
	}
	sold := Sale{Key: "k", State: SaleDone, Guard: "lock-redis-lua", Lines: []SaleLine{{Line: Line{GoodsID: 1, Count: 2}}}}
	if changed, err := sold.Cancel(CancelRequest{SaleID: SaleID{Key: "k"}}, ""); changed || !errors.Is(err, ErrKeyReused) {
		t.Errorf("a sale: %v, %v", changed, err)
	}
}
