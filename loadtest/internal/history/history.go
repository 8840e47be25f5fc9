// Package history holds what each client asked, when, and what it was told: one file of JSON lines for each run of one
// strategy, so that a verdict can be reached again from the disk alone.
package history

// Outcome is how a request ended, as its client saw it.
type Outcome string

// The outcomes. All but Sold and Unknown promise that nothing was deducted.
const (
	Sold     Outcome = "sold"     // 200
	SoldOut  Outcome = "sold_out" // 409
	Busy     Outcome = "busy"     // 503: gave up waiting
	Rejected Outcome = "rejected" // any other 4xx: the lab asked for something wrong
	Unknown  Outcome = "unknown"  // timeout, 5xx, broken connection: it may have taken effect
)

// Kinds of Op.
const (
	Deduct  = "deduct"
	Restock = "restock"
)

// Run describes what was run. It is the first line of a file.
type Run struct {
	Cell
	Seed      uint64          `json:"seed"`
	Planned   int             `json:"planned"`           // requests that the workload asks for
	Bounded   string          `json:"bounded,omitempty"` // why fewer were sent than planned
	Promise   string          `json:"promise"`           // the strategy's claim for this number of replicas
	Exclusive bool            `json:"exclusive"`         // claims that critical sections never overlap
	Untold    bool            `json:"untold,omitempty"`  // declares that its receipts do not report what remains
	Control   bool            `json:"control"`           // wrong on purpose
	Witness   string          `json:"witness"`           // who read the stock: "oracle" or "service"
	Scarce    bool            `json:"scarce,omitempty"`  // the workload is to ask for more units than there are
	Keys      bool            `json:"keys,omitempty"`    // each request's name is its idempotency key
	Ledger    bool            `json:"ledger,omitempty"`  // the strategy keeps a ledger that the oracle can read
	Initial   map[int64]int64 `json:"initial"`           // units by item
}

// Op is one request and its reply. Times are CLOCK_MONOTONIC nanoseconds of the lab's host.
type Op struct {
	Kind       string  `json:"kind"`
	Client     int     `json:"client"`
	Order      string  `json:"order"` // the same for every try of one order
	GoodsID    int64   `json:"goods_id"`
	Count      int64   `json:"count"`
	IntendedNS int64   `json:"intended_ns,omitempty"` // open loop: when it should have been sent
	SentNS     int64   `json:"sent_ns"`
	ReceivedNS int64   `json:"received_ns"`
	Status     int     `json:"status,omitempty"` // HTTP; 0 where no reply came
	Outcome    Outcome `json:"outcome"`
	Remaining  int64   `json:"remaining"`        // as told with Sold and SoldOut
	Untold     bool    `json:"untold,omitempty"` // Sold without a word on what remains: Remaining says nothing
	Replica    string  `json:"replica,omitempty"`
	RequestID  string  `json:"request_id,omitempty"`
	Attempts   int     `json:"attempts,omitempty"`
	Token      uint64  `json:"token,omitempty"`
	WaitedUS   int64   `json:"waited_us,omitempty"`
	HeldUS     int64   `json:"held_us,omitempty"`
	EnteredNS  int64   `json:"entered_ns,omitempty"`
	LeftNS     int64   `json:"left_ns,omitempty"`
	Error      string  `json:"error,omitempty"`    // problem type, or the transport's error
	Again      bool    `json:"again,omitempty"`    // sent once more, after the load, to hear the first answer again
	Replayed   bool    `json:"replayed,omitempty"` // the service says that this is the first answer, given again
}

// Entry is a row of the service's ledger, as the oracle read it after the run.
type Entry struct {
	Order     string `json:"order"` // the order's key
	GoodsID   int64  `json:"goods_id"`
	Count     int64  `json:"count"` // units taken; 0 where it was sold out
	Remaining int64  `json:"remaining"`
}

// Event is something the lab did or saw beside the traffic: a fault, a restart, a barrier reached.
type Event struct {
	AtNS   int64  `json:"at_ns"`
	Name   string `json:"name"`
	Detail string `json:"detail,omitempty"`
}

// End is the last line of a file. Without it the run was interrupted.
type End struct {
	StartedNS       int64           `json:"started_ns"`
	EndedNS         int64           `json:"ended_ns"`
	Final           map[int64]int64 `json:"final"`                 // units by goods
	Seller          map[int64]int64 `json:"seller,omitempty"`      // units by goods in the store that sold them, where Final is of one that is told afterwards
	LedgerRead      bool            `json:"ledger_read,omitempty"` // the entries of the file are all of the ledger's for this run
	Dropped         int             `json:"dropped,omitempty"`     // open loop: not sent, no client was free
	MeanLagNS       int64           `json:"mean_lag_ns,omitempty"` // open loop: how much later than intended requests were sent
	MaxLagNS        int64           `json:"max_lag_ns,omitempty"`
	MySQLStatements int64           `json:"mysql_statements,omitempty"` // by the server's own count, from the load's start to its end; those of restocks are among them
	RedisCommands   int64           `json:"redis_commands,omitempty"`   // by the servers' own count
}
