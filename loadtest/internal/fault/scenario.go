// Package fault replays short scenarios of what can go wrong: a holder dies, its write comes late, a client sends
// again.
//
// A scenario runs on real processes. It injects its fault at a point that it can observe, never after a delay alone,
// and says what proves that it did. The judge of the lab decides what came of it.
package fault

import (
	"slices"
	"strings"

	"stock/loadtest/internal/load"
	"stock/loadtest/internal/oracle"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/verify"
)

// Scenario is one scenario. Every strategy to which it applies plays it as a cell of its own.
type Scenario struct {
	// Name is that of the scenario. Variants of a scenario have a common part before a slash.
	Name   string
	Title  string  // what happens, in one sentence
	For    players // who plays it
	Claims []Claim // the first that is of a strategy counts
	On     Setting
	Play   func(*Stage) `yaml:"-"`
}

// Claim is what is expected of a scenario: in words, and the outcomes that agree with them.
type Claim struct {
	Of      players // empty: of every strategy that plays the scenario
	Words   string
	Effects []report.Effect
	// Catalogue names a fault whose consequences the catalogue claims. Words and Outcomes follow from that.
	Catalogue string
}

// Applies reports whether a strategy plays the scenario.
func (s Scenario) Applies(to load.Strategy) bool { return s.For.has(to) }

// Claim is what is expected of a strategy to which the scenario applies.
func (s Scenario) Claim(of load.Strategy) Claim {
	for _, c := range s.Claims {
		if len(c.Of) == 0 || c.Of.has(of) {
			return c.claimed(of.Claim)
		}
	}
	return Claim{}
}

// claimed is the claim with what the catalogue says, by one word or with a caveat.
func (c Claim) claimed(says load.Claim) Claim {
	switch c.Catalogue {
	case "":
		return c
	case "holder-crash":
		c.Words = says.HolderCrash
	case "late-write":
		c.Words = says.LateWrite
	case "client-retry":
		c.Words = says.ClientRetry
	case "holder-pause":
		switch c.Words = says.HolderPause; {
		case c.Words == "blocks" && says.LateCaveat != "":
			return Claim{Words: c.Words + ", " + says.LateCaveat, Effects: []report.Effect{report.Safe, report.Blocked}}
		case c.Words == "blocks", c.Words != "loses-updates" && says.HolderCrash == "blocks-until-lease-ends":
			c.Effects = []report.Effect{report.Blocked}
			return c
		}
	}
	outcome := report.Safe
	switch c.Words {
	case "blocks-until-lease-ends":
		outcome = report.Blocked
	case "blocks-forever":
		outcome = report.Unavailable
	case "loses-units", "loses-updates", "deducts-again":
		outcome = report.Unsafe
	}
	c.Effects = []report.Effect{outcome}
	return c
}

// players is a list of names of strategies, and of groups of them. A name after an exclamation mark is left out.
type players []string

func (p players) has(s load.Strategy) (has bool) {
	for _, name := range p {
		name, out := strings.CutPrefix(name, "!")
		if is, known := groups[name]; name == s.Name || known && is(s) {
			if out {
				return false
			}
			has = true
		}
	}
	return has
}

// groups are strategies that have something in common.
var groups = map[string]func(load.Strategy) bool{
	"all": func(s load.Strategy) bool { return !s.Baseline() },

	// By what the catalogue claims.
	"correct":            sellsCorrectly,
	"never-unlocks":      neverUnlocks,
	"late-write-blocks":  func(s load.Strategy) bool { return s.Claim.LateWrite == "blocks" },
	"late-write-refused": func(s load.Strategy) bool { return s.Claim.LateWrite == "refused" },
	"late-write-lost":    losesLateWrite,
	"late-by-chance": func(s load.Strategy) bool { // whether a sale is lost depends on when a second begins
		return s.Claim.HolderPause == "loses-updates" && s.Claim.LateCaveat != ""
	},
	"unfenced-lease": func(s load.Strategy) bool { return hasLease(s) && losesLateWrite(s) },
	"keeps-keys":     func(s load.Strategy) bool { return s.Idempotent },
	"reservations":   func(s load.Strategy) bool { return len(s.Reservations) > 0 },

	// By the store.
	"write-through":  func(s load.Strategy) bool { return s.WriteThrough }, // MySQL follows before the answer
	"write-behind":   func(s load.Strategy) bool { return s.WriteBehind },  // it follows later
	"uses-redis":     func(s load.Strategy) bool { return slices.Contains(s.Needs, "redis") },
	"sells-in-mysql": func(s load.Strategy) bool { return !s.Baseline() && s.Stores[0] != oracle.Redis },
	"orders-in-mysql": func(s load.Strategy) bool {
		return s.Stores[0] == oracle.MySQL && slices.Contains(s.Orders, oracle.MySQL)
	},
	"correct-in-redis": func(s load.Strategy) bool { return s.Stores[0] == oracle.Redis && sellsCorrectly(s) },

	// Locks in Redis, each of which is one key.
	"lock-in-redis": lockInRedis,
	"lease-in-redis": func(s load.Strategy) bool {
		return lockInRedis(s) && !waitsForReplica(s) && !neverUnlocks(s)
	},
	"renewed-in-redis":  renewedInRedis,
	"queued":            hasQueue,
	"waits-for-replica": waitsForReplica,
}

func sellsCorrectly(s load.Strategy) bool { return s.Claim.TwoReplicas == verify.ClaimCorrect }

func losesLateWrite(s load.Strategy) bool { return s.Claim.LateWrite == "loses-updates" }

// neverUnlocks reports whether the lock of a holder that has died stays.
func neverUnlocks(s load.Strategy) bool { return s.Claim.HolderCrash == "blocks-forever" }

// hasLease reports whether the lock of a holder that has died ends with its lease.
func hasLease(s load.Strategy) bool { return s.Claim.HolderCrash == "blocks-until-lease-ends" }

func lockInRedis(s load.Strategy) bool {
	return strings.HasPrefix(s.Name, "lock-redis-") && !slices.Contains(s.Needs, "redlock")
}

// renewedInRedis reports whether a lock in Redis is renewed while it is held.
func renewedInRedis(s load.Strategy) bool {
	return slices.Contains([]string{
		"lock-redis-watchdog", "lock-redis-pubsub", "lock-redis-fair", "lock-redis-rlock", "lock-redis-fenced",
		"lock-redis-queue",
	}, s.Name)
}

// hasQueue reports whether those who wait for the lock are served in the order of arrival.
func hasQueue(s load.Strategy) bool {
	return s.Name == "lock-redis-fair" || s.Name == "lock-redis-queue"
}

// waitsForReplica reports whether a lock is granted only when a Redis replica has it.
func waitsForReplica(s load.Strategy) bool { return slices.Contains(s.Needs, "redis-replica") }
