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
	State      string  `json:"state,omitempty"`  // of the sale, as replied with Done, as are the next three
	Sold       int64   `json:"sold,omitempty"`   // units; 0 if nothing was
	Cancelled  int64   `json:"cancelled,omitempty"`
	GivenBack  int64   `json:"given_back,omitempty"`
	Error      string  `json:"error,omitempty"` // problem type, or the error of the connection
}

// Problem types of cancelled sales.
const (
	ProblemSaleCancelled = "/problems/cancelled"      // of a sale
	ProblemMoreThanSold  = "/problems/more-than-sold" // of a cancellation
	ProblemUnknownSale   = "/problems/unknown-sale"
)
