package stock

// Promise is what a strategy's arithmetic is worth.
type Promise string

// The promises.
const (
	Correct      Promise = "correct"       // sells no unit twice, loses none, refuses nobody while stock is left
	LosesUpdates Promise = "loses-updates" // two buyers are sold the same unit
	Oversells    Promise = "oversells"     // sells more than there is, as soon as demand exceeds the stock
	SellsNothing Promise = "sells-nothing" // the baseline: confirms everything and deducts nothing
)

// Claim is what a strategy promises. The lab measures the promises and fails where measurement and claim differ.
type Claim struct {
	OneReplica  Promise `json:"one_replica"`
	TwoReplicas Promise `json:"two_replicas"`
	// Restocked replaces Correct while Restock adds units at the same time. Under a lock without a fence, a holder that
	// read the stock before the restock overwrites it.
	Restocked Promise `json:"restocked"`
	// Exclusive reports that, where the strategy is Correct, no two critical sections of one item overlap as long as no
	// lease runs out.
	Exclusive bool `json:"exclusive"`
	// HolderCrash, HolderPause and ClientRetry describe what happens when a replica dies inside the critical section,
	// when it is stopped there for longer than the lease, and when a client sends a request again after a timeout.
	HolderCrash Effect `json:"holder_crash"`
	HolderPause Effect `json:"holder_pause"`
	ClientRetry Effect `json:"client_retry"`
}

// Effect is what a fault or a retry leads to, in the words of the tables.
type Effect string

// The effects that many strategies share.
const (
	Safe            Effect = "safe"
	LosesUpdate     Effect = "loses an update"
	WriteRefused    Effect = "safe: its write is refused"
	BlocksMeanwhile Effect = "safe: blocks the item meanwhile"
	BlockedForLease Effect = "safe: blocked until the lease ends"
	RollsBack       Effect = "safe: the server rolls back"
	LostWithRedis   Effect = "safe; if Redis dies, sales that its AOF has not flushed are lost"
	DeductsAgain    Effect = "deducts again"
	RepliesAgain    Effect = "with an idempotency key: the first answer again"
)
