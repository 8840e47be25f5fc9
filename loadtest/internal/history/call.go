package history

// CallsVersion is the version of the Calls that this package writes and understands.
const CallsVersion = 1

// Kinds of Call.
const (
	Hold    = "hold"    // units for a time
	Confirm = "confirm" // a reservation
	Cancel  = "cancel"  // a reservation
	Inspect = "inspect" // a reservation, which stays as it is
)

// Outcomes of a Call, beside SoldOut, Busy, Rejected and Unknown.
const (
	Done    Outcome = "done"    // 200 or 201
	Refused Outcome = "refused" // the reservation has ended otherwise or does not exist: Error tells which
)

// States of a reservation, as the service tells them.
const (
	Held      = "held"
	Confirmed = "confirmed"
	Cancelled = "cancelled"
	Expired   = "expired"
)

// Problem types with which a Call is Refused.
const (
	ProblemExpired     = "/problems/reservation-expired"
	ProblemCancelled   = "/problems/reservation-cancelled"
	ProblemConfirmed   = "/problems/reservation-confirmed"
	ProblemUnknownHold = "/problems/unknown-reservation"
)

// Call is a request to hold units, or about the reservation that came of it, and its reply. Times in nanoseconds are
// CLOCK_MONOTONIC of the lab's host. Times in microseconds are since 1970, as the service tells them.
type Call struct {
	Kind        string  `json:"kind"`
	Client      int     `json:"client"`
	Name        string  `json:"name"`                  // of the hold; the same for every Call about what came of it
	Reservation string  `json:"reservation,omitempty"` // the id; empty if no reply to the hold told it
	GoodsID     int64   `json:"goods_id"`
	Count       int64   `json:"count"`
	TTLMS       int64   `json:"ttl_ms"` // as the hold asks for it
	SentNS      int64   `json:"sent_ns"`
	ReceivedNS  int64   `json:"received_ns"`
	Status      int     `json:"status,omitempty"` // of HTTP; 0 if there was no reply
	Outcome     Outcome `json:"outcome"`
	State       string  `json:"state,omitempty"` // as replied with Done, as are the next three
	CreatedUS   int64   `json:"created_us,omitempty"`
	ExpiresUS   int64   `json:"expires_us,omitempty"`
	EndedUS     int64   `json:"ended_us,omitempty"` // 0 if the reply has none
	Remaining   *int64  `json:"remaining,omitempty"`
	Replica     string  `json:"replica,omitempty"`
	RequestID   string  `json:"request_id,omitempty"`
	Error       string  `json:"error,omitempty"`    // problem type, or the error of the connection
	Keyed       bool    `json:"keyed,omitempty"`    // the name was sent as Idempotency-Key
	Again       bool    `json:"again,omitempty"`    // the client has sent the same before
	Replayed    bool    `json:"replayed,omitempty"` // the service marked the answer as that of an earlier hold
}
