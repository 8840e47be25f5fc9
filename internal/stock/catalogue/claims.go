package catalogue

import "stock/internal/stock"

// Claims that several strategies share.
var (
	losesUpdates = stock.Claim{
		OneReplica:  stock.LosesUpdates,
		TwoReplicas: stock.LosesUpdates,
		Restocked:   stock.LosesUpdates,
		HolderCrash: stock.CrashIsHarmless,
		HolderPause: stock.LateLosesUpdates,
		LateWrite:   stock.LateLosesUpdates,
		ClientRetry: stock.RetryDeductsAgain,
	}
	// mutexOfOneReplica is the claim of a mutex, which other replicas do not see.
	mutexOfOneReplica = stock.Claim{
		OneReplica:  stock.Correct,
		TwoReplicas: stock.LosesUpdates,
		Restocked:   stock.LosesUpdates,
		Exclusive:   true,
		HolderCrash: stock.CrashIsHarmless,
		HolderPause: stock.LateLosesUpdates,
		LateWrite:   stock.LateLosesUpdates,
		ClientRetry: stock.RetryRepeatsAnswer,
	}
	// undersells is the claim of a deduction that is undone if there was too little.
	undersells = stock.Claim{
		OneReplica:  stock.Undersells,
		TwoReplicas: stock.Undersells,
		Restocked:   stock.Undersells,
		HolderCrash: stock.CrashIsHarmless,
		HolderPause: stock.LateIsHarmless,
		LateWrite:   stock.LateIsHarmless,
		ClientRetry: stock.RetryDeductsAgain,
		CrashCaveat: "but the units that it is giving back are lost",
	}
	// oneStatement is the claim of a single atomic write.
	oneStatement = stock.Claim{
		OneReplica:  stock.Correct,
		TwoReplicas: stock.Correct,
		Restocked:   stock.Correct,
		Exclusive:   true,
		HolderCrash: stock.CrashIsHarmless,
		HolderPause: stock.LateIsHarmless,
		LateWrite:   stock.LateIsHarmless,
		ClientRetry: stock.RetryRepeatsAnswer,
	}
	// rowLock is the claim of a transaction that locks the item's row.
	rowLock = stock.Claim{
		OneReplica:  stock.Correct,
		TwoReplicas: stock.Correct,
		Restocked:   stock.Correct,
		Exclusive:   true,
		HolderCrash: stock.CrashRollsBack,
		HolderPause: stock.LateBlocks,
		LateWrite:   stock.LateBlocks,
		ClientRetry: stock.RetryRepeatsAnswer,
	}
	// optimisticLocking is the claim of a write that is refused if the row has changed.
	optimisticLocking = stock.Claim{
		OneReplica:  stock.Correct,
		TwoReplicas: stock.Correct,
		Restocked:   stock.Correct,
		Exclusive:   true,
		HolderCrash: stock.CrashIsHarmless,
		HolderPause: stock.LateIsRefused,
		LateWrite:   stock.LateIsRefused,
		ClientRetry: stock.RetryRepeatsAnswer,
	}
	// leasedLock is the claim of a lock with a lease and without a fence.
	leasedLock = stock.Claim{
		OneReplica:  stock.Correct,
		TwoReplicas: stock.Correct,
		Restocked:   stock.LosesUpdates,
		Exclusive:   true,
		HolderCrash: stock.CrashBlocksLease,
		HolderPause: stock.LateIsNotSent,
		LateWrite:   stock.LateLosesUpdates,
		ClientRetry: stock.RetryRepeatsAnswer,
	}
	// fencedLock is the claim of a lock whose token the store checks.
	fencedLock = stock.Claim{
		OneReplica:  stock.Correct,
		TwoReplicas: stock.Correct,
		Restocked:   stock.Correct,
		Exclusive:   true,
		HolderCrash: stock.CrashBlocksLease,
		HolderPause: stock.LateIsRefused,
		LateWrite:   stock.LateIsRefused,
		ClientRetry: stock.RetryRepeatsAnswer,
	}
)

// deductingAgain is a claim of a strategy without keys.
func deductingAgain(c stock.Claim) stock.Claim {
	c.ClientRetry = stock.RetryDeductsAgain
	return c
}

// asPeopleWriteIt is why controls keep no keys.
const asPeopleWriteIt = "it is wrong on purpose, as people write it, without keys"

// onBuyerLimit is a claim of a strategy that counts what buyers have bought.
func onBuyerLimit(c stock.Claim, effect stock.BuyerLimit) stock.Claim {
	c.BuyerLimit = effect
	return c
}

// onCrash and onPause are a claim with another answer to a holder's death, or to a pause of it.
func onCrash(c stock.Claim, effect stock.Crash) stock.Claim {
	c.HolderCrash = effect
	return c
}

func onPause(c stock.Claim, effect stock.LateWrite) stock.Claim {
	c.HolderPause = effect
	return c
}

// exceptLate is a claim with an exception to what follows from a late write.
func exceptLate(c stock.Claim, caveat string) stock.Claim {
	c.LateCaveat = caveat
	return c
}

// asDurableAsRedis is a claim of a strategy whose sales only Redis knows.
func asDurableAsRedis(c stock.Claim) stock.Claim {
	c.CrashCaveat = "but a crash or a failover of Redis may lose the last sales"
	return c
}

// returningLater is a claim of a strategy that holds units before it sells them.
func returningLater(c stock.Claim) stock.Claim {
	c.CrashCaveat = "but the units that the dead replica held are back only half a minute later"
	return c
}

// overlapping is a claim of a strategy whose critical sections may overlap.
func overlapping(c stock.Claim) stock.Claim {
	c.Exclusive = false
	return c
}
