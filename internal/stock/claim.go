package stock

// Behaviour is how a strategy sells.
type Behaviour string

// The behaviours.
const (
	Correct      Behaviour = "correct"       // sells no unit twice, loses none, refuses nobody while stock is left
	LosesUpdates Behaviour = "loses-updates" // writes overwrite others, so that units are sold and still in stock
	Oversells    Behaviour = "oversells"     // sells more than there is, as soon as demand exceeds the stock
	Undersells   Behaviour = "undersells"    // refuses buyers while stock is left
	SellsNothing Behaviour = "sells-nothing" // the baseline: confirms everything and deducts nothing
)

// Claim is what the catalogue promises about a strategy. The lab measures how the strategy behaves, and fails if that
// differs from the claim.
type Claim struct {
	OneReplica  Behaviour `json:"one_replica"`
	TwoReplicas Behaviour `json:"two_replicas"`
	// Restocked replaces Correct while units are added at the same time, by a restock or by a cancellation. Under a lock
	// without a fence, a holder that read the stock before overwrites it.
	Restocked Behaviour `json:"restocked"`
	// Exclusive reports that, where the strategy is Correct, no two critical sections of one item overlap as long as no
	// lease runs out.
	Exclusive bool `json:"exclusive"`
	// HolderCrash is what follows when a replica dies inside the critical section.
	HolderCrash Crash `json:"holder_crash"`
	// HolderPause is what follows when a replica is stopped inside the critical section until all leases have ended, and
	// then goes on.
	HolderPause LateWrite `json:"holder_pause"`
	// LateWrite is what follows when the holder's write has left the replica, and arrives late: after the next buyer has
	// bought.
	LateWrite LateWrite `json:"late_write"`
	// ClientRetry is what follows when a client sends a request again after a timeout.
	ClientRetry Retry `json:"client_retry"`
	// CrashCaveat and LateCaveat are exceptions to HolderCrash, and to HolderPause and LateWrite. They continue a
	// sentence; most claims have none.
	CrashCaveat string `json:"crash_caveat,omitempty"`
	LateCaveat  string `json:"late_caveat,omitempty"`
}

// Crash is what a holder's death leads to.
type Crash string

// The effects of a crash.
const (
	CrashIsHarmless    Crash = "harmless"
	CrashRollsBack     Crash = "rolls-back"
	CrashUnlocks       Crash = "unlocks"
	CrashBlocksLease   Crash = "blocks-until-lease-ends"
	CrashBlocksForever Crash = "blocks-forever"
	CrashLosesUnits    Crash = "loses-units" // nobody bought them, and they are no longer for sale
)

var crashWords = map[Crash]string{
	CrashIsHarmless:    "safe",
	CrashRollsBack:     "safe: the server rolls back",
	CrashUnlocks:       "safe: the server frees the lock at once",
	CrashBlocksLease:   "blocked until the lease ends",
	CrashBlocksForever: "blocked for ever",
	CrashLosesUnits:    "loses units",
}

// String returns the words of the tables; none for a value that is not a constant.
func (c Crash) String() string { return crashWords[c] }

// LateWrite is what a late write leads to: one that comes after the holder's turn.
type LateWrite string

// The effects of a late write.
const (
	LateIsHarmless   LateWrite = "harmless" // it depends on nothing that was read before
	LateIsRefused    LateWrite = "refused"
	LateIsNotSent    LateWrite = "not-sent" // the holder finds that its lease has ended, unless it has sent its write
	LateBlocks       LateWrite = "blocks"   // it is never late, because nobody else can write to the item meanwhile
	LateLosesUpdates LateWrite = "loses-updates"
)

var lateWords = map[LateWrite]string{
	LateIsHarmless:   "safe",
	LateIsRefused:    "safe: its write is refused",
	LateIsNotSent:    "gives up, unless it has sent its write",
	LateBlocks:       "blocks the item meanwhile",
	LateLosesUpdates: "loses an update",
}

// String returns the words of the tables; none for a value that is not a constant.
func (l LateWrite) String() string { return lateWords[l] }

// Retry is what a request leads to that is sent again.
type Retry string

// The effects of a retry.
const (
	RetryIsHarmless    Retry = "harmless" // there is nothing to deduct
	RetryDeductsAgain  Retry = "deducts-again"
	RetryRepeatsAnswer Retry = "repeats-answer"
)

var retryWords = map[Retry]string{
	RetryIsHarmless:    "nothing is deducted",
	RetryDeductsAgain:  "deducts again",
	RetryRepeatsAnswer: "with an idempotency key: the first answer again",
}

// String returns the words of the tables; none for a value that is not a constant.
func (r Retry) String() string { return retryWords[r] }
