package catalogue

import "stock/internal/stock"

// Claims that several strategies share.
var (
	losesUpdates = stock.Claim{
		OneReplica:  stock.LosesUpdates,
		TwoReplicas: stock.LosesUpdates,
		Restocked:   stock.LosesUpdates,
		HolderCrash: stock.Safe,
		HolderPause: stock.LosesUpdate,
		ClientRetry: stock.DeductsAgain,
	}
	// oneStatement is the claim of a single atomic write.
	oneStatement = stock.Claim{
		OneReplica:  stock.Correct,
		TwoReplicas: stock.Correct,
		Restocked:   stock.Correct,
		Exclusive:   true,
		HolderCrash: stock.Safe,
		HolderPause: stock.Safe,
		ClientRetry: stock.DeductsAgain,
	}
	// rowLock is the claim of a transaction that locks the item's row.
	rowLock = stock.Claim{
		OneReplica:  stock.Correct,
		TwoReplicas: stock.Correct,
		Restocked:   stock.Correct,
		Exclusive:   true,
		HolderCrash: stock.RollsBack,
		HolderPause: stock.BlocksMeanwhile,
		ClientRetry: stock.DeductsAgain,
	}
	// optimisticLocking is the claim of a write that is refused if the row has changed.
	optimisticLocking = stock.Claim{
		OneReplica:  stock.Correct,
		TwoReplicas: stock.Correct,
		Restocked:   stock.Correct,
		Exclusive:   true,
		HolderCrash: stock.Safe,
		HolderPause: stock.WriteRefused,
		ClientRetry: stock.DeductsAgain,
	}
	// leasedLock is the claim of a lock with a lease and without a fence.
	leasedLock = stock.Claim{
		OneReplica:  stock.Correct,
		TwoReplicas: stock.Correct,
		Restocked:   stock.LosesUpdates,
		Exclusive:   true,
		HolderCrash: stock.BlockedForLease,
		HolderPause: stock.LosesUpdate,
		ClientRetry: stock.DeductsAgain,
	}
	// fencedLock is the claim of a lock whose token the store checks.
	fencedLock = stock.Claim{
		OneReplica:  stock.Correct,
		TwoReplicas: stock.Correct,
		Restocked:   stock.Correct,
		Exclusive:   true,
		HolderCrash: stock.BlockedForLease,
		HolderPause: stock.WriteRefused,
		ClientRetry: stock.DeductsAgain,
	}
)

// idempotent is a claim of a strategy that answers a request that is sent again as before.
func idempotent(c stock.Claim) stock.Claim {
	c.ClientRetry = stock.RepliesAgain
	return c
}

// onPause and onCrash are a claim with another answer to one of the two faults.
func onPause(c stock.Claim, effect stock.Effect) stock.Claim {
	c.HolderPause = effect
	return c
}

func onCrash(c stock.Claim, effect stock.Effect) stock.Claim {
	c.HolderCrash = effect
	return c
}

// overlapping is a claim of a strategy whose critical sections may overlap.
func overlapping(c stock.Claim) stock.Claim {
	c.Exclusive = false
	return c
}
