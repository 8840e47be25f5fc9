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
		c.LateWrite = stock.LateIsNotSent
	}
	if s.Name == "lock-multi" { // its named lock excludes nobody on another node, and its lock in Redis ends
		c.HolderPause = stock.LateIsNotSent
	}
	return c
}

// givingUp are strategies that keep others out until their replica gives up and closes its connection. They claim
// nothing about a write that arrives later: in the lab's scenario late-write, the node did not carry it out.
var givingUp = []string{
	"mutex-around-tx", "lock-redis-setnx", "lock-redis-watchdog", "lock-redis-pubsub", "lock-redis-rlock",
	"lock-redis-fair", "lock-redis-multi", "lock-multi",
}
