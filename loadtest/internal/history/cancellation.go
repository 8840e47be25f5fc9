package history

// Cancellation is a request to cancel a sale by its key, and its reply. Times are CLOCK_MONOTONIC nanoseconds of the
// lab's host.
type Cancellation struct {
	Client     int     `json:"client"`
	Name       string  `json:"order"` // of the sale: its key
	GoodsID    int64   `json:"goods_id"`
	Asked      int64   `json:"asked,omitempty"` // units that are to be cancelled in all; 0: all that were sold
	SentNS     int64   `json:"sent_ns"`
	ReceivedNS int64   `json:"received_ns"`
	Status     int     `json:"status,omitempty"` // of HTTP; 0 if there was no reply
	Outcome    Outcome `json:"outcome"`          // Done, Refused, Busy, Rejected or Unknown
	State      string  `json:"state,omitempty"`  // Cancelled, NeverSold or "sold", as replied with Done, as are the next
	Sold       int64   `json:"sold,omitempty"`   // units; 0 if nothing was
	Cancelled  int64   `json:"cancelled,omitempty"`
	GivenBack  int64   `json:"given_back,omitempty"`
	Error      string  `json:"error,omitempty"` // problem type, or the error of the connection
}

// NeverSold is the state of a sale that was cancelled before it was made.
const NeverSold = "never-sold"

// Wholly reports whether the service said that nothing is left of the sale.
func (c *Cancellation) Wholly() bool {
	return c.Outcome == Done && (c.State == Cancelled || c.State == NeverSold)
}

// Problem types of cancelled sales.
const (
	ProblemSaleCancelled = "/problems/cancelled"      // of a sale
	ProblemMoreThanSold  = "/problems/more-than-sold" // of a cancellation
	ProblemUnknownSale   = "/problems/unknown-sale"
)
