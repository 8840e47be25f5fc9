package catalogue

import "stock/internal/stock"

// Claims that several strategies share.
var (
	losesUpdates = always(stock.LosesUpdates, stock.CrashIsHarmless, stock.LateLosesUpdates)
	// mutexOfOneReplica is the claim of a mutex, which other replicas do not see.
	mutexOfOneReplica = onOneReplica(losesUpdates, stock.Correct)
	// undersells is the claim of a deduction that is undone if there was too little.
	undersells = exceptCrash(always(stock.Undersells, stock.CrashIsHarmless, stock.LateIsHarmless),
		"but the units that it is giving back are lost")
	// oneStatement is the claim of a single atomic write.
	oneStatement = always(stock.Correct, stock.CrashIsHarmless, stock.LateIsHarmless)
	// rowLock is the claim of a transaction that locks the item's row.
	rowLock = always(stock.Correct, stock.CrashRollsBack, stock.LateBlocks)
	// optimisticLocking is the claim of a write that is refused if the row has changed.
	optimisticLocking = always(stock.Correct, stock.CrashIsHarmless, stock.LateIsRefused)
	// leasedLock is the claim of a lock with a lease and without a fence.
	leasedLock = besideRestocks(onPause(
		always(stock.Correct, stock.CrashBlocksLease, stock.LateLosesUpdates), stock.LateIsNotSent), stock.LosesUpdates)
	// fencedLock is the claim of a lock whose token the store checks.
	fencedLock = always(stock.Correct, stock.CrashBlocksLease, stock.LateIsRefused)
)

// always is the claim of a strategy that behaves in one way on one replica, on two, and beside restocks; late follows
// from a pause of the holder and from a late write. Only correct strategies exclude others and keep keys.
func always(behaviour stock.Behaviour, crash stock.Crash, late stock.LateWrite) stock.Claim {
	c := stock.Claim{
		OneReplica: behaviour, TwoReplicas: behaviour, Restocked: behaviour,
		HolderCrash: crash, HolderPause: late, LateWrite: late,
	}
	return onOneReplica(c, behaviour)
}

func onOneReplica(c stock.Claim, behaviour stock.Behaviour) stock.Claim {
	c.OneReplica, c.Exclusive, c.ClientRetry = behaviour, behaviour == stock.Correct, stock.RetryDeductsAgain
	if behaviour == stock.Correct {
		c.ClientRetry = stock.RetryRepeatsAnswer
	}
	return c
}

// besideRestocks is a claim of a strategy that behaves in another way beside restocks.
func besideRestocks(c stock.Claim, behaviour stock.Behaviour) stock.Claim {
	c.Restocked = behaviour
	return c
}

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

// exceptCrash is a claim with an exception to what follows from a crash.
func exceptCrash(c stock.Claim, caveat string) stock.Claim {
	c.CrashCaveat = caveat
	return c
}

// asDurableAsRedis is a claim of a strategy whose sales only Redis knows.
func asDurableAsRedis(c stock.Claim) stock.Claim {
	return exceptCrash(c, "but a failover of Redis may lose the last sales, and so may a crash without appendfsync always")
}

// returningLater is a claim of a strategy that holds units before it sells them.
func returningLater(c stock.Claim) stock.Claim {
	return exceptCrash(c, "but the units that the dead replica held are back only half a minute later")
}

// overlapping is a claim of a strategy whose critical sections may overlap.
func overlapping(c stock.Claim) stock.Claim {
	c.Exclusive = false
	return c
}
