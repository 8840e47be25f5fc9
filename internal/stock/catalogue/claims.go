package catalogue

import "stock/internal/stock"

// Claims that several strategies share.
var (
	losesUpdates = always(stock.LosesUpdates, stock.CrashIsHarmless, stock.LateLosesUpdates)
	// mutexOfOneReplica is the claim of a mutex, which other replicas do not see.
	mutexOfOneReplica = but(losesUpdates, func(c *stock.Claim) {
		c.OneReplica, c.Exclusive, c.ClientRetry = stock.Correct, true, stock.RetryRepeatsAnswer
	})
	// undersells is the claim of a deduction that is undone if there was too little.
	undersells = but(always(stock.Undersells, stock.CrashIsHarmless, stock.LateIsHarmless), func(c *stock.Claim) {
		c.CrashCaveat = "but the units that it is giving back are lost"
	})
	// oneStatement is the claim of a single atomic write.
	oneStatement = always(stock.Correct, stock.CrashIsHarmless, stock.LateIsHarmless)
	// rowLock is the claim of a transaction that locks the item's row.
	rowLock = always(stock.Correct, stock.CrashRollsBack, stock.LateBlocks)
	// optimisticLocking is the claim of a write that is refused if the row has changed.
	optimisticLocking = always(stock.Correct, stock.CrashIsHarmless, stock.LateIsRefused)
	// leasedLock is the claim of a lock with a lease and without a fence.
	leasedLock = but(always(stock.Correct, stock.CrashBlocksLease, stock.LateLosesUpdates), func(c *stock.Claim) {
		c.HolderPause, c.Restocked = stock.LateIsNotSent, stock.LosesUpdates
	})
	// fencedLock is the claim of a lock whose token the store checks.
	fencedLock = always(stock.Correct, stock.CrashBlocksLease, stock.LateIsRefused)
)

// always is the claim of a strategy that behaves in one way on one replica, on two, and beside restocks; late follows
// from a pause of the holder and from a late write. Only correct strategies exclude others and keep keys.
func always(behaviour stock.Behaviour, crash stock.Crash, late stock.LateWrite) stock.Claim {
	c := stock.Claim{
		OneReplica: behaviour, TwoReplicas: behaviour, Restocked: behaviour,
		HolderCrash: crash, HolderPause: late, LateWrite: late,
		Exclusive: behaviour == stock.Correct, ClientRetry: stock.RetryDeductsAgain,
	}
	if behaviour == stock.Correct {
		c.ClientRetry = stock.RetryRepeatsAnswer
	}
	return c
}

// but returns a claim with exceptions.
func but(c stock.Claim, change func(*stock.Claim)) stock.Claim {
	change(&c)
	return c
}

// overlapping is a claim of a strategy whose critical sections may overlap. If it has a caveat, that is an exception to
// what follows from a late write.
func overlapping(c stock.Claim, caveat string) stock.Claim {
	c.Exclusive, c.LateCaveat = false, caveat
	return c
}

// exceptLate is a claim with an exception to what follows from a late write.
func exceptLate(c stock.Claim, caveat string) stock.Claim {
	c.LateCaveat = caveat
	return c
}

// asDurableAsRedis is a claim of a strategy whose sales only Redis knows.
func asDurableAsRedis(c stock.Claim) stock.Claim {
	c.CrashCaveat = "but a failover of Redis may lose the last sales, and so may a crash without appendfsync always"
	return c
}
