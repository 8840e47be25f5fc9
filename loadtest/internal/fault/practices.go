package fault

import (
	"stock/loadtest/internal/explore"
	"stock/loadtest/internal/oracle"
	"stock/loadtest/internal/report"
)

// Practices that are scripts.
var (
	checkThenWrite = Practice{
		Name: "check-then-write", Fault: explore.LeaseEnds, Claim: claim("loses-updates", report.Unsafe),
	}
	renewUntilError = Practice{
		Name: "renew-until-error", Fault: explore.LeaseEnds,
		Claim: claim("relies on its lock until a renewal fails", report.Unsafe),
	}
	renewOwnLock = Practice{
		Name: "renew-own-lock", Claim: claim("renews a lock only if it is its own", report.Safe),
	}
	renewBySet = Practice{Name: "renew-by-set", Claim: claim("leaves a lock without a holder", report.Blocked)}
	retrySetNX = Practice{
		Name: "retry-set-nx", Fault: explore.LostReply,
		Claim: claim("is refused by the lock that its own first request has set", report.Blocked),
	}
	retryAsOwner = Practice{
		Name: "retry-as-owner", Fault: explore.LostReply, Claim: claim("is granted the lock that is its own", report.Safe),
	}
	incrToken = Practice{
		Name: "incr-token", Claim: claim("refuses everybody: its tokens begin again from 1", report.Unavailable),
	}
	tokenFromTime = Practice{
		Name:  "token-from-time",
		Claim: claim("makes the token from the time, so that it rises all the same", report.Safe),
	}
	getLockNewConnection = Practice{
		Name: "get-lock-new-connection", Fault: explore.LostRequest,
		Claim: claim("works on another connection, and does not notice", report.Unsafe),
	}
	getLockSameConnection = Practice{
		Name: "get-lock-same-connection", Fault: explore.LostRequest,
		Claim: claim("loses its connection to the stock with the lock", report.Safe),
	}
)

// crashBeforeExpire is about a lock that is set and made to expire in two commands.
var crashBeforeExpire = Scenario{
	Name:    "crash-before-expire",
	Title:   "A client is cut off just after its lock was set, and never returns.",
	Applies: noStrategy,
	Practices: []Practice{
		{Name: "setnx-then-expire", Fault: explore.ReplicaDies, Claim: claim("blocks-forever", report.Unavailable)},
		{Name: "set-nx-px", Fault: explore.ReplicaDies, Claim: claim("blocks-until-lease-ends", report.Blocked)},
	},
}

// writeOnlyFence is about a write that comes late, but before the next holder has shown its token to the store.
var writeOnlyFence = Scenario{
	Name:    "write-only-fence",
	Title:   "A holder's write comes late, between the read and the write of the next holder, who has a newer token.",
	Applies: noStrategy,
	Practices: []Practice{
		{
			Name: "fence-in-write", Fault: explore.LeaseEnds,
			Claim: claim("accepts a late write until a newer token has come", report.Unsafe),
		},
		{
			Name: "register-then-read", Fault: explore.LeaseEnds,
			Claim: claim("refuses a late write once the next holder has read", report.Safe),
		},
		{
			Name: "fence-and-stock-in-write", Fault: explore.LeaseEnds,
			Claim: claim("refuses the next holder, which has read before the late write", report.Safe),
		},
	},
}

// readBeforeLock is about a transaction that reads for the first time before it takes the lock. At REPEATABLE READ, all
// its plain reads see the data as of the first one.
var readBeforeLock = Scenario{
	Name:    "read-before-lock",
	Title:   "A's transaction has its first read before it gets the lock, which B holds until it has sold.",
	Applies: noStrategy,
	Practices: []Practice{
		{Name: "read-then-lock", Claim: claim("loses-updates", report.Unsafe)},
		{Name: "read-then-lock-read-committed", Claim: claim("correct", report.Safe)},
		{Name: "read-then-lock-for-update", Claim: claim("correct", report.Safe)},
	},
}

// twoReads is about a transaction that locks the row and then reads it once more without FOR UPDATE.
var twoReads = Scenario{
	Name:    "two-reads",
	Title:   "A locks the row with SELECT FOR UPDATE, and then reads it again by a plain SELECT, which sees older data.",
	Applies: noStrategy,
	Practices: []Practice{
		{Name: "lock-then-plain-read", Claim: claim("loses-updates", report.Unsafe)},
		{Name: "locking-read-alone", Claim: claim("correct", report.Safe)},
	},
}

// lockedUnits is about rows that are locked and not sold.
var lockedUnits = Scenario{
	Name:    "false-sold-out/locked-units",
	Title:   "A has locked all units of an item, one row each, and gives up while B asks for one with SKIP LOCKED.",
	Applies: noStrategy,
	Practices: []Practice{
		{Name: "skip-locked-once", Store: oracle.Units, Claim: claim("undersells", report.Unsafe)},
		{Name: "skip-locked-then-wait", Store: oracle.Units, Claim: claim("correct", report.Safe)},
	},
}

var oppositeOrderPractices = []Practice{
	{Name: "transactions-in-opposite-order", Claim: claim("deadlock: one of two is rolled back", report.Safe)},
	{Name: "redis-locks-in-opposite-order", Claim: claim("deadlock: each waits for the other", report.Unavailable)},
	{Name: "redis-locks-in-ascending-order", Claim: claim("correct", report.Safe)},
}

var commitAfterTimeoutPractices = []Practice{
	{Name: "commit-after-timeout", Claim: claim("half the order is deducted", report.Unsafe)},
	{Name: "rollback-after-timeout", Claim: claim("correct", report.Safe)},
}

var abaPractices = []Practice{
	{Name: "two-items-checked-by-stock", Claim: claim("loses-updates", report.Unsafe)},
	{Name: "two-items-checked-by-version", Claim: claim("refuses the stale write", report.Safe)},
}

var coarseTimestampPractices = []Practice{
	{Name: "optimistic-timestamp", Claim: claim("loses-updates", report.Unsafe)},
	{Name: "optimistic-timestamp-us", Claim: claim("refuses the stale write", report.Safe)},
}

var unlockPractices = []Practice{
	{Name: "unlock-before-commit", Claim: claim("loses-updates", report.Unsafe)},
	{Name: "unlock-after-commit", Claim: claim("correct", report.Safe)},
}
