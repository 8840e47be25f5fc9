// Package history defines the record of a run: what each client requested, when, and how it was answered, in one file
// of JSON lines per run. A verdict can be reached again from these files alone.
//
// Some JSON names are those of older versions: "order" is the name or key of any request, "promise" is a claim, and
// "untold" says that a receipt omits what remains.
package history

import (
	"regexp"
	"strings"
)

// Outcome is how a request ended, as its client saw it.
type Outcome string

// The outcomes. All except Sold, Done and Unknown guarantee that this request changed nothing.
const (
	Sold      Outcome = "sold"      // 200; of a restock: it was put back
	Done      Outcome = "done"      // 200 or 201: something else was done
	SoldOut   Outcome = "sold_out"  // 409
	Busy      Outcome = "busy"      // the service gave up, was not reachable, or still works on an earlier try
	Withdrawn Outcome = "cancelled" // 409: the sale was cancelled by its key
	Refused   Outcome = "refused"   // the reservation or the sale is not such that this can be done: Error tells why
	Rejected  Outcome = "rejected"  // any other 4xx: the lab sent an invalid request
	Unknown   Outcome = "unknown"   // timeout, 5xx, broken connection: the request may have taken effect
)

// Mismatch is the Error of a request with an answer that is unreadable, or for something else. It confirms nothing, so
// the outcome is Unknown.
const Mismatch = "the receipt does not match the request"

// BusyProblem is the Error of an Op for which the service gave up waiting for others. Its outcome is Busy.
const BusyProblem = "/problems/busy"

// problemType matches the type of a problem.
var problemType = regexp.MustCompile(`/problems/[a-z-]+`)

// InWords returns a text with words in place of the types of problems: "sold out" for "/problems/sold-out".
func InWords(text string) string {
	return problemType.ReplaceAllStringFunc(text, func(name string) string {
		return strings.ReplaceAll(strings.TrimPrefix(name, "/problems/"), "-", " ")
	})
}

// Witnesses of a Run.
const (
	WitnessOracle  = "oracle"
	WitnessService = "service"
)

// Kinds of Op.
const (
	Deduct     = "deduct"
	Order      = "order" // of several lines: it has Lines instead of an item and a count
	Restock    = "restock"
	CancelSale = "cancel-sale" // by its key
	Hold       = "hold"        // units for a time
	Confirm    = "confirm"     // a reservation
	Cancel     = "cancel"      // a reservation
	Inspect    = "inspect"     // a reservation, which stays as it is
)

// States of a reservation, and of a sale that was cancelled, as the service tells them.
const (
	Held      = "held"
	Confirmed = "confirmed"
	Cancelled = "cancelled"
	Expired   = "expired"
	NeverSold = "never-sold" // cancelled before the sale was made
)

// Problem types with which a request about a reservation or a sale is Refused, and with which a sale is Withdrawn.
const (
	ProblemExpired     = "/problems/reservation-expired"
	ProblemCancelled   = "/problems/reservation-cancelled"
	ProblemConfirmed   = "/problems/reservation-confirmed"
	ProblemUnknownHold = "/problems/unknown-reservation"

	ProblemMoreThanSold  = "/problems/more-than-sold" // of a cancellation
	ProblemUnknownSale   = "/problems/unknown-sale"
	ProblemSaleCancelled = "/problems/cancelled"
)

// How an Op with Again was sent. Empty: after the load.
const (
	AtOnce   = "at once"   // right after the answer
	InFlight = "in flight" // by another client, together with the first request
	Later    = "later"     // after some other requests
)

// Run describes what was run. It is the first line of a file.
type Run struct {
	Cell
	Seed            uint64 `json:"seed"`
	Planned         int    `json:"planned"`               // requests that the workload asks for
	Bounded         string `json:"bounded,omitempty"`     // why fewer were sent than planned
	Claim           string `json:"promise"`               // the strategy's claim for this number of replicas
	Exclusive       bool   `json:"exclusive"`             // claims that critical sections never overlap
	Fenced          bool   `json:"fenced,omitempty"`      // each sale has a fencing token
	OmitsRemaining  bool   `json:"untold,omitempty"`      // declares that its receipts do not report what remains
	LateLosesUpdate bool   `json:"late,omitempty"`        // claims that a late write loses an update
	Control         bool   `json:"control"`               // wrong on purpose
	Witness         string `json:"witness"`               // who read the stock: WitnessOracle or WitnessService
	Scarce          bool   `json:"scarce,omitempty"`      // the workload is to ask for more units than there are
	Keys            bool   `json:"keys,omitempty"`        // each request's name is its idempotency key
	Ledger          bool   `json:"ledger,omitempty"`      // the strategy keeps a ledger that the oracle can read
	JudgedOnly      bool   `json:"judged_only,omitempty"` // the run is too small to measure anything
	Retries         bool   `json:"retries,omitempty"`     // requests are sent again during the load
	Cancels         bool   `json:"cancels,omitempty"`     // some sales are cancelled during the load
	Reserves        bool   `json:"reserves,omitempty"`    // units are held, and then sold or given back
	Own             bool   `json:"own,omitempty"`         // a service of the user's was run, which claims nothing
	Scenario        string `json:"scenario,omitempty"`    // the fault scenario that was played; empty: a load was run
	// Set holds the units by item that the lab set before the run; it is nil if the lab found the stock.
	Set     map[int64]int64 `json:"set,omitempty"`
	Initial map[int64]int64 `json:"initial"` // units by item, as read before the run
	// InitialSeller is the same for the store that sells, if Initial is of a store that is updated afterwards.
	InitialSeller map[int64]int64 `json:"initial_seller,omitempty"`
}

// Op is one request and its reply. Times in nanoseconds are CLOCK_MONOTONIC of the lab's host; those in microseconds
// are since 1970, as the service tells them.
type Op struct {
	Kind           string  `json:"kind"`
	Client         int     `json:"client"`
	Name           string  `json:"order"` // of the deduction, order, hold or restock; the same for all that follows it
	GoodsID        int64   `json:"goods_id"`
	Count          int64   `json:"count"`                 // units; of CancelSale: those to be cancelled in all, 0: all
	Lines          []Line  `json:"lines,omitempty"`       // of an order
	IntendedNS     int64   `json:"intended_ns,omitempty"` // open loop: when it should have been sent
	SentNS         int64   `json:"sent_ns"`
	ReceivedNS     int64   `json:"received_ns"`
	Status         int     `json:"status,omitempty"` // of HTTP; 0 if there was no reply
	Outcome        Outcome `json:"outcome"`
	Remaining      int64   `json:"remaining"`        // as replied with Sold and SoldOut
	OmitsRemaining bool    `json:"untold,omitempty"` // the reply had no remaining stock: Remaining is not set
	Replica        string  `json:"replica,omitempty"`
	RequestID      string  `json:"request_id,omitempty"`
	Attempts       int     `json:"attempts,omitempty"`
	Token          uint64  `json:"token,omitempty"`
	WaitedUS       int64   `json:"waited_us,omitempty"`
	HeldUS         int64   `json:"held_us,omitempty"`
	EnteredNS      int64   `json:"entered_ns,omitempty"`
	LeftNS         int64   `json:"left_ns,omitempty"`
	Error          string  `json:"error,omitempty"`    // problem type, or the error of the connection
	Again          bool    `json:"again,omitempty"`    // sent again, to get the first answer again
	How            string  `json:"how,omitempty"`      // AtOnce, InFlight or Later, if it was sent again during the load
	Replayed       bool    `json:"replayed,omitempty"` // the service marked the answer as the first one, repeated

	// Of a hold, and of what follows it. The times are as replied with Done.
	Keyed       bool   `json:"keyed,omitempty"`       // the hold's name was sent as Idempotency-Key
	TTLMS       int64  `json:"ttl_ms,omitempty"`      // as the hold asks for it
	Reservation string `json:"reservation,omitempty"` // the id; empty if no reply to the hold told it
	CreatedUS   int64  `json:"created_us,omitempty"`
	ExpiresUS   int64  `json:"expires_us,omitempty"`
	EndedUS     int64  `json:"ended_us,omitempty"` // 0 if the reply has none

	// Of a reservation, or of a sale that is cancelled, as replied with Done.
	State     string `json:"state,omitempty"`
	Sold      int64  `json:"sold,omitempty"` // units of the sale; 0 if nothing was
	Cancelled int64  `json:"cancelled,omitempty"`
	GivenBack int64  `json:"given_back,omitempty"`
}

// Sells reports whether the request is to sell units at once.
func (op *Op) Sells() bool { return op.Kind == Deduct || op.Kind == Order }

// Wholly reports whether the service said that nothing is left of the sale that was to be cancelled.
func (op *Op) Wholly() bool {
	return op.Outcome == Done && (op.State == Cancelled || op.State == NeverSold)
}

// Line is one item of an order.
type Line struct {
	GoodsID        int64  `json:"goods_id"`
	Count          int64  `json:"count"`
	Remaining      int64  `json:"remaining"`        // as replied with Sold, and with SoldOut for a line that is short
	OmitsRemaining bool   `json:"untold,omitempty"` // the reply with Sold had no remaining stock
	Short          bool   `json:"short,omitempty"`  // the reply with SoldOut names this item as the one that is sold out
	Token          uint64 `json:"token,omitempty"`
}

// Entry is a row of the service's ledger, as the oracle read it after the run.
type Entry struct {
	Key       string `json:"order"` // the request's idempotency key
	GoodsID   int64  `json:"goods_id"`
	Count     int64  `json:"count"` // units deducted; 0 if the item was sold out
	Remaining int64  `json:"remaining"`
}

// End is the last line of a file. A file without it is of an interrupted run.
type End struct {
	StartedNS int64           `json:"started_ns"`
	EndedNS   int64           `json:"ended_ns"`
	Final     map[int64]int64 `json:"final"` // units by item
	// Seller holds the units by item in the store that sells, if Final is of a store that is updated afterwards.
	Seller     map[int64]int64 `json:"seller,omitempty"`
	LedgerRead bool            `json:"ledger_read,omitempty"` // the file has all ledger entries of this run
	Dropped    int             `json:"dropped,omitempty"`     // open loop: not sent, because no client was free
	MeanLagNS  int64           `json:"mean_lag_ns,omitempty"` // open loop: how much later than intended requests were sent
	MaxLagNS   int64           `json:"max_lag_ns,omitempty"`
	// DriverCPUNS is what the lab used of the CPU during the load, in user and system mode.
	DriverCPUNS int64 `json:"driver_cpu_ns,omitempty"`
	// The servers' own counts for the time of the load. They include restocks.
	MySQLStatements int64 `json:"mysql_statements,omitempty"`
	RedisCommands   int64 `json:"redis_commands,omitempty"`
	// CPUNS is the CPU time that each part of the service and its servers used during the load.
	CPUNS map[string]int64 `json:"cpu_ns,omitempty"`
}
