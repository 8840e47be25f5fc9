package catalogue

import (
	"slices"

	"stock/internal/stock"
)

// OnGalera is what a strategy claims if its replicas use different nodes of a Galera cluster that wait for each other's
// writes before they read (wsrep_sync_wait).
//
// A node knows only its own locks on rows and its own named locks. Two nodes that have written the same row find that
// out when they commit: the second is rolled back. So a lock on a row protects its item, but blocks nobody on another
// node.
func OnGalera(s stock.Strategy) stock.Claim {
	c := s.Claim
	switch {
	case s.Name == "lock-mysql-getlock":
		c.TwoReplicas, c.Restocked, c.HolderPause = stock.LosesUpdates, stock.LosesUpdates, stock.LateLosesUpdates
	case c.LateWrite == stock.LateBlocks:
		c.HolderPause, c.LateWrite = stock.LateIsRefused, stock.LateIsRefused
	case slices.Contains(givingUp, s.Name):
		c.LateWrite = stock.LateBlocks
	}
	if s.Name == "lock-multi" { // its named lock excludes nobody on another node, and its lock in Redis ends
		c.HolderPause = stock.LateIsNotSent
	}
	return c
}

// givingUp are strategies that keep others out until their replica gives up and closes its connection. In the lab's
// scenario late-write, a node did not carry out a write that arrived later.
var givingUp = []string{
	"lock-redis-setnx", "lock-redis-watchdog", "lock-redis-pubsub", "lock-redis-rlock", "lock-redis-fair",
	"lock-redis-multi", "lock-multi",
}
