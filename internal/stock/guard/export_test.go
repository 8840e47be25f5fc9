package guard

import "stock/internal/stock"

// Remembered counts the items of a store that are remembered.
func (r *Replica) Remembered(on stock.Store) (n int) {
	for range r.items[on].found.Range {
		n++
	}
	return n
}
