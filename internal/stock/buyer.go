package stock

import "fmt"

// MaxBuyer is the most characters of a buyer's name.
const MaxBuyer = 64

// Buyer limits how many units of each item one buyer may buy. The zero value limits nothing.
//
// What counts is what the buyer has bought by requests that name the buyer, from any strategy with a ledger, since the
// stock of the item was set.
type Buyer struct {
	Name  string // 1 to MaxBuyer printable ASCII characters, or empty
	Limit int    // units of one item, 1 to MaxCount if there is a Name
}

// Check refuses a line with a *BuyerLimitError if the buyer, who has bought some units of the item, would exceed the
// limit.
func (b Buyer) Check(line Line, bought int64) error {
	if b.Name == "" || bought+int64(line.Count) <= int64(b.Limit) {
		return nil
	}
	return &BuyerLimitError{GoodsID: line.GoodsID, Asked: line.Count, Bought: bought, Limit: b.Limit}
}

// BuyerLimitError is an ErrBuyerLimit with the units that the buyer has bought.
type BuyerLimitError struct {
	GoodsID int64
	Asked   int
	Bought  int64 // units
	Limit   int   // units
}

// Error names the item and the limit.
func (e *BuyerLimitError) Error() string {
	return fmt.Sprintf("the buyer has bought %d units of item %d: %d more would exceed the limit of %d",
		e.Bought, e.GoodsID, e.Asked, e.Limit)
}

// Is makes errors.Is(err, ErrBuyerLimit) true.
func (e *BuyerLimitError) Is(target error) bool { return target == ErrBuyerLimit }
