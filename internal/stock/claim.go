package stock

// Behaviour is how a strategy sells.
type Behaviour string

// The behaviours.
const (
	Correct      Behaviour = "correct"       // sells no unit twice, loses none, refuses nobody while stock is left
	LosesUpdates Behaviour = "loses-updates" // two buyers are sold the same unit
	Oversells    Behaviour = "oversells"     // sells more than there is, as soon as demand exceeds the stock
	SellsNothing Behaviour = "sells-nothing" // the baseline: confirms everything and deducts nothing
)

// Claim is what the catalogue promises about a strategy. The lab measures how the strategy behaves, and fails if that
// differs from the claim.
type Claim struct {
	OneReplica  Behaviour `json:"one_replica"`
	TwoReplicas Behaviour `json:"two_replicas"`
	// Restocked replaces Correct while Restock adds units at the same time. Under a lock without a fence, a holder that
	// read the stock before the restock overwrites it.
	Restocked Behaviour `json:"restocked"`
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
